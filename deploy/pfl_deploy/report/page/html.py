"""The frame of a report: one HTML file that loads nothing from any other machine."""

from __future__ import annotations

import json
from html import escape

from pfl_common.printable import printable

MOST_ROWS, FEW_ROWS = 40, 12
"""Rows of a table that grows with rounds or sites: of more than a few it is folded, the JSON beside it has all."""
KINDS = {
    "run": ("#2563c9", "#2563c9", "#6ea0f5"),
    "local": ("#8b95a5", "#636d7e", "#8f99a8"),
    "fedavg": ("#d98324", "#a0590a", "#e79a45"),
    "other1": ("#8a4fbf", "#8a4fbf", "#b48be0"),
    "other2": ("#2f8f9a", "#1f717b", "#5fc0cb"),
    "other3": ("#b83f6b", "#b83f6b", "#e07ba0"),
    "other4": ("#6f7d1f", "#5f6b18", "#a9b954"),
    "stays": ("#3b8f6b", "#2b7455", "#5cb88f"),
    "lost": ("#c2413a", "#b83731", "#ea7d76"),
}
"""Whose a mark is, or what it says: its colour by day, that of its words by day, that of both by night."""


def _variables(*, night: bool) -> str:
    return " ".join(
        f"--{kind}: {dark if night else day}; --{kind}-words: {dark if night else words};"
        for kind, (day, words, dark) in KINDS.items()
    )


def _colours() -> str:
    """One rule for each kind of mark: a stroke for lines, a fill for areas and words."""
    rules = (
        f".line.{k} {{ stroke: var(--{k}); }} .dot.{k} {{ stroke: var(--{k}); fill: var(--{k}); }} "
        f".bar.{k}, .part.{k}, .band.{k} {{ fill: var(--{k}); }} i.{k} {{ background: var(--{k}); }} "
        f"svg text.{k} {{ fill: var(--{k}-words); }}"
        for k in KINDS
    )
    return "\n".join(rules)


STYLE = f"""
:root {{ --ground: #fbfbf9; --card: #ffffff; --ink: #1c2330; --soft: #5d6778; --edge: #e3e5e8;
  {_variables(night=False)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --ground: #14171c; --card: #1c2027; --ink: #e8eaee;
  --soft: #9aa4b3; --edge: #2e343d; {_variables(night=True)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 34px; line-height: 1.2; letter-spacing: -0.02em; margin: 0 0 12px; max-width: 24em;
  overflow-wrap: anywhere; }}
h2 {{ font-size: 21px; letter-spacing: -0.01em; margin: 52px 0 6px; }}
h3 {{ font-size: 15px; margin: 0 0 4px; overflow-wrap: anywhere; }}
p {{ max-width: 46em; margin: 6px 0 14px; overflow-wrap: anywhere; }}
.lead {{ font-size: 19px; color: var(--ink); }}
.soft, figcaption {{ color: var(--soft); font-size: 14px; }}
.tiles {{ display: grid; grid-template-columns: repeat(var(--row), 1fr); gap: 12px; margin: 26px 0 8px; }}
.tile, .card {{ background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 14px 16px;
  min-width: 0; break-inside: avoid; }}
.tile b {{ display: block; font-size: 26px; letter-spacing: -0.02em; font-variant-numeric: tabular-nums;
  white-space: nowrap; }}
.tile span {{ color: var(--soft); font-size: 13px; }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); gap: 14px;
  margin: 12px 0; align-items: start; }}
.card img {{ width: 100%; image-rendering: pixelated; border-radius: 5px; display: block; margin: 8px 0; }}
figure {{ margin: 12px 0; break-inside: avoid; }}
svg {{ width: 100%; height: auto; display: block; overflow: visible; }}
svg text {{ font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }}
text.middle {{ text-anchor: middle; }} text.right {{ text-anchor: end; }}
.grid {{ stroke: var(--edge); stroke-width: 1; }}
.line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
.line.run {{ stroke-width: 2.8; }}
.line.dashed {{ stroke-dasharray: 5 4; stroke-width: 1.6; }} .line.thin {{ stroke-width: 1; opacity: 0.45; }}
.band {{ opacity: 0.16; }}
{_colours()}
text.group {{ font-size: 14px; fill: var(--ink); }} text.end {{ font-weight: 600; }} text.best {{ font-weight: 700; }}
text.inside {{ fill: #fff; font-weight: 600; font-size: 13px; }} text.small {{ font-weight: 400; font-size: 12px; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: 14px; margin: 8px 0; overflow-wrap: anywhere; }}
.legend i {{ display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 7px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; margin: 10px 0; }}
th, td {{ padding: 5px 16px 5px 0; text-align: left; border-bottom: 1px solid var(--edge); vertical-align: top;
  overflow-wrap: break-word; }}
th {{ color: var(--soft); font-weight: 500; }} td.n, th.n {{ text-align: right; white-space: nowrap; }}
tr.mean td {{ font-weight: 600; }} td.best {{ font-weight: 700; }}
code, pre {{ font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
pre {{ white-space: pre-wrap; background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 10px 14px; }}
.state {{ display: inline-block; border-radius: 999px; padding: 2px 12px; font-size: 13px; font-weight: 600;
  color: #fff; background: #2b7455; }}
.state.running {{ background: #2563c9; }} .state.stopped {{ background: #8a5f10; }}
.state.failed {{ background: #b83731; }}
details {{ margin: 8px 0; }} summary {{ cursor: pointer; color: var(--soft); font-size: 14px; }}
footer {{ margin-top: 56px; border-top: 1px solid var(--edge); padding-top: 14px; }}
@media (max-width: 480px) {{ main {{ padding: 24px 14px 40px; }} h1 {{ font-size: 26px; }} .lead {{ font-size: 17px; }}
  .tile b {{ font-size: 22px; }} .card {{ padding: 12px 10px; }}
  .tiles {{ grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); }} }}
@media (min-width: 481px) and (max-width: 860px) {{
  .tiles {{ grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); }} }}
@media print {{ main {{ max-width: none; padding: 0; }} h2 {{ margin-top: 28px; break-after: avoid; }}
  body {{ background: #fff; font-size: 11pt; }} .wide {{ overflow: visible; }} tr {{ break-inside: avoid; }} }}
"""


def page(title: str, sections: list[str]) -> str:
    """The whole document. Names of classes and words of peers stand in it: what would turn the direction of writing,
    or is not seen at all, is shown as its number.
    """
    return printable(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n",
        keep="\n",
    )


def section(name: str, heading: str, *parts: str) -> str:
    """A part of the page with its heading."""
    return f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n' + "\n".join(parts) + "\n</section>"


def paragraph(words: str, kind: str = "") -> str:
    """Words, escaped."""
    return f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>"


def figure(drawing: str, caption: str = "") -> str:
    """A drawing with what it shows below it."""
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def card(heading: str, drawing: str, caption: str = "") -> str:
    """A drawing among others, with its name above it."""
    below = f'<div class="soft">{escape(caption)}</div>' if caption else ""
    return f'<div class="card"><h3>{escape(heading)}</h3>{drawing}{below}</div>'


def pair(cards: list[str]) -> str:
    """Cards beside each other, or below each other where there is no room."""
    return f'<div class="pair">{"".join(cards)}</div>'


def legend(kinds: dict[str, str]) -> str:
    """Colours and what they mean."""
    marks = "".join(f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, words in kinds.items())
    return f'<div class="legend">{marks}</div>'


def tiles(facts: dict[str, str]) -> str:
    """Large figures, each with what it says."""
    made = "".join(
        f"<div class=tile><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in facts.items()
    )
    row = min((4, 5, 3), key=lambda many: -len(facts) % many)  # as few gaps as can be
    return f'<div class="tiles" style="--row: {row}">{made}</div>'


def table(
    head: list[str], rows: list[list[str]], *, numbers_from: int = 1, foot: list[str] | None = None
) -> str:
    """Cells, escaped; from one column on they are numbers and stand to the right. `foot` is a last row of means."""

    def cells(kind: str, values: list[str]) -> str:
        marks = (' class="n"' if place >= numbers_from else "" for place in range(len(values)))
        return "".join(f"<{kind}{m}>{escape(v)}</{kind}>" for m, v in zip(marks, values, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    if foot:
        body += f'<tr class="mean">{cells("td", foot)}</tr>'
    made = f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{made}</div>'


def folded(summary: str, value: object) -> str:
    """A value as JSON, shown when its summary is clicked."""
    words = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(words)}</pre></details>"


def long_table(
    head: list[str],
    rows: list[list[str]],
    what: str,
    *,
    numbers_from: int = 1,
    foot: list[str] | None = None,
) -> str:
    """Its first rows, and the last one of means; how many more there are is said."""
    made = table(head, rows[:MOST_ROWS], numbers_from=numbers_from, foot=foot)
    more = len(rows) - MOST_ROWS
    if more > 0:
        made += paragraph(f"{more:,} more {what} stand in report.json.", "soft")
    if len(rows) <= FEW_ROWS:
        return made
    return f"<details><summary>{escape(f'{len(rows):,} {what}')}</summary>{made}</details>"

"""The frame of the report: one HTML file that asks nothing of any other machine."""

from __future__ import annotations

from html import escape

STYLE = """
:root { --ground: #fbfbf9; --card: #ffffff; --ink: #1c2330; --soft: #5d6778; --edge: #e3e5e8;
  --local: #8b95a5; --fedavg: #d98324; --dualfed: #2563c9; --stays: #3b8f6b; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --card: #1c2027; --ink: #e8eaee;
  --soft: #9aa4b3; --edge: #2e343d; --local: #8f99a8; --fedavg: #e79a45; --dualfed: #6ea0f5; --stays: #5cb88f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 34px; line-height: 1.2; letter-spacing: -0.02em; margin: 0 0 12px; max-width: 24em; }
h2 { font-size: 21px; letter-spacing: -0.01em; margin: 52px 0 6px; }
h3 { font-size: 15px; margin: 0 0 4px; }
p { max-width: 46em; margin: 6px 0 14px; }
.lead { font-size: 19px; color: var(--ink); }
.soft, figcaption { color: var(--soft); font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 26px 0 8px; }
.tile, .card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 14px 16px; }
.tile b { display: block; font-size: 26px; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 14px; }
.card img { width: 100%; image-rendering: pixelated; border-radius: 5px; display: block; margin: 8px 0; }
figure { margin: 12px 0; }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
text.middle { text-anchor: middle; } text.right { text-anchor: end; }
text.group { font-size: 14px; fill: var(--ink); } text.end { font-weight: 600; } text.best { font-weight: 700; }
text.inside { fill: #fff; font-weight: 600; font-size: 13px; } text.small { font-weight: 400; font-size: 12px; }
.grid { stroke: var(--edge); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.dualfed { stroke-width: 2.8; }
.line.local, .dot.local { stroke: var(--local); } .bar.local, .dot.local, text.local { fill: var(--local); }
.line.fedavg, .dot.fedavg { stroke: var(--fedavg); } .bar.fedavg, .dot.fedavg, text.fedavg { fill: var(--fedavg); }
.line.dualfed, .dot.dualfed { stroke: var(--dualfed); }
.bar.dualfed, .dot.dualfed, text.dualfed, .bar.time { fill: var(--dualfed); }
.part.travels { fill: var(--dualfed); } .part.stays { fill: var(--stays); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: 14px; margin: 8px 0; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 7px; }
i.local { background: var(--local); } i.fedavg { background: var(--fedavg); }
i.dualfed, i.travels { background: var(--dualfed); } i.stays { background: var(--stays); }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; margin: 10px 0; }
th, td { padding: 5px 16px 5px 0; text-align: left; border-bottom: 1px solid var(--edge); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; }
tr.mean td { font-weight: 600; } td.best { font-weight: 700; }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--soft); font-size: 14px; }
footer { margin-top: 56px; border-top: 1px solid var(--edge); padding-top: 14px; }
"""


def page(title: str, sections: list[str]) -> str:
    """The whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
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


def legend(kinds: dict[str, str]) -> str:
    """Colours and what they mean."""
    marks = "".join(f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, words in kinds.items())
    return f'<div class="legend">{marks}</div>'


def tiles(facts: dict[str, str]) -> str:
    """Large figures, each with what it says."""
    made = "".join(
        f"<div class=tile><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in facts.items()
    )
    return f'<div class="tiles">{made}</div>'


def table(head: list[str], rows: list[list[str]], *, numbers_from: int = 1) -> str:
    """Cells, escaped; from one column on they are numbers and stand to the right."""

    def cells(kind: str, values: list[str]) -> str:
        marks = (' class="n"' if place >= numbers_from else "" for place in range(len(values)))
        return "".join(f"<{kind}{m}>{escape(v)}</{kind}>" for m, v in zip(marks, values, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"

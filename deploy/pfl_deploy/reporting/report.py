"""The page about one run: what was reached and by whom, what crossed the network, where time went, what was lost."""

from __future__ import annotations

import json
import shlex
from html import escape

from pfl_common.run import ClientId
from pfl_deploy.reporting import amounts, plots
from pfl_deploy.reporting.amounts import counted
from pfl_deploy.reporting.charts import Chart
from pfl_deploy.reporting.costs import say_bytes, tell_communication, tell_losses, tell_time
from pfl_deploy.reporting.diagnostics import explain
from pfl_deploy.reporting.drawings import draw_all
from pfl_deploy.reporting.facts import (
    Facts,
    Told,
    describe,
    differ,
    gains,
    seconds_until,
    site_gains,
    versions_here,
)
from pfl_deploy.reporting.measures import Point
from pfl_deploy.reporting.page import card, legend, long_table, page, pair, paragraph, section, table, tiles
from pfl_deploy.reporting.workings import tell_method


def render(facts: Facts) -> str:
    """The whole page."""
    charts = draw_all(facts)
    parts = [_head(facts), _accuracy(facts, charts), _sites(facts, charts), tell_communication(facts)]
    parts += [
        tell_time(facts, charts),
        tell_losses(facts, charts),
        tell_method(facts, charts),
        _setup(facts),
        _unknown(facts),
    ]
    spec = facts.run.record.spec
    return page(f"{spec.method}: run {spec.id}", [part for part in (*parts, _foot(facts)) if part])


def summarise(facts: Facts) -> str:
    """The result in one or two sentences."""
    record, final = facts.run.record, facts.run.measured.final
    if final is None:
        return "Nothing was measured yet."
    when = "After its last round" if facts.run.measured.end else f"After {counted(final.after, 'round')}"
    words = (
        f"{when} {record.spec.method} reaches {amounts.percent(final.mean)} on average over "
        f"{counted(final.sites, 'site')}, {amounts.percent(final.worst_decile)} over the worst tenth of them."
    )
    others = [
        f"{100 * abs(gain):.1f} points {'above' if gain >= 0 else 'below'} {_words_of(told)}{_say_own(told)}"
        for told in facts.beside
        if (gain := gains(facts).get(told.kind)) is not None
    ]
    if others:
        words += f" That is {' and '.join(others)}."
    words += "".join(_say_hindered(told) for told in facts.beside)
    shifted = facts.run.measured.final_of("shifted")
    if shifted is not None:
        words += (
            f" On shifted test data, which came about otherwise than what is trained on, it reaches "
            f"{amounts.percent(shifted.mean)} ({counted(shifted.sites, 'site')})."
        )
    return words


def _say_own(told: Told) -> str:
    """The methods' own settings may differ; which do stands in the same line."""
    own = told.differences.own
    return f" (differing in {'; '.join(own)})" if own else ""


def _say_hindered(told: Told) -> str:
    """Where more than the method differs, neither run is above the other."""
    final, hindering = told.measured.final, told.differences.hindering
    if final is None or not hindering:
        return ""
    who = _words_of(told)
    return f" {who[0].upper()}{who[1:]} reaches {amounts.percent(final.mean)}; not comparable: {'; '.join(hindering)}."


def _words_of(told: Told) -> str:
    return "training alone" if told.kind == "local" else told.name


def _head(facts: Facts) -> str:
    record, final = facts.run.record, facts.run.measured.final
    title = f"{record.spec.method} at {counted(len(record.sites), 'site')}"
    under_way = record.status == "running"
    state = "under way" if under_way else record.status
    badge = (
        f'<p><span class="state {escape(record.status)}">{escape(state)}</span> '
        f'<span class="soft">run {escape(record.spec.id)}, read {escape(amounts.moment(facts.made))}</span></p>'
    )
    tell = {} if final is None else _tiles_of(facts, final)
    return (
        f"<h1>{escape(title)}</h1>\n{badge}\n{paragraph(record.words) if record.words else ''}"
        f"{paragraph(summarise(facts), 'lead')}\n"
        f"{tiles({**tell, **_tiles_of_run(facts)})}"
    )


def _tiles_of(facts: Facts, final: Point) -> dict[str, str]:
    made = {
        "mean accuracy on the sites' test data": amounts.percent(final.mean),
        "worst tenth of the sites": amounts.percent(final.worst_decile),
    }
    if facts.run.measured.best is not None:
        best = facts.run.measured.best
        made[f"best mean, after round {best.after}"] = amounts.percent(best.mean)
    for told in facts.beside:
        gain = gains(facts).get(told.kind)
        if gain is not None:
            made[f"points against {_words_of(told)}"] = amounts.points(gain)
    return made


def _tiles_of_run(facts: Facts) -> dict[str, str]:
    record, traffic = facts.run.record, facts.run.traffic
    crossed = traffic.by_round(measured=traffic.is_measured)
    total = sum(one.total for one in crossed.values())
    made = {
        "rounds of those planned": f"{len(record.committed)} / {record.spec.rounds}",
        "crossed the network" if traffic.is_measured else "to cross a network": amounts.size(total),
    }
    last = max((tried.round for tried in record.committed), default=0)
    seconds = seconds_until(facts.run, last)
    if seconds:
        made["from the first round to the last"] = amounts.duration(seconds)
    return made


def _accuracy(facts: Facts, charts: dict[str, Chart]) -> str:
    headline = facts.run.measured.headline[0]
    when = "before a round's training, with" if headline.startswith("pre/") else "right after training on"
    words = (
        f"Each site measures the method's own prediction on its own test data, {when} the state a round begins with; "
        "points stand at the number of rounds trained before. The band is one standard deviation over sites, the "
        "dashed line the worst tenth of the sites."
    )
    shown = {
        "accuracy": "Test data, over rounds",
        "accuracy_over_bytes": "Test data, over bytes",
        "shifted": "Test data, shifted, over rounds",
        "validation": "Validation data, over rounds",
        "views": "By head of the network",
        "loss": "Loss on test data",
    }
    notes = {"views": explain(facts.run.record.spec.method).get("views", "")}
    cards = [
        card(title, plots.draw(charts[name]), notes.get(name, ""))
        for name, title in shown.items()
        if name in charts
    ]
    if not cards:
        return ""
    bytes_words = say_bytes(facts)
    return section(
        "accuracy",
        "What was reached",
        paragraph(words, "soft"),
        legend(_names(facts)),
        pair(cards),
        paragraph(f"Bytes are {bytes_words}.", "soft") if "accuracy_over_bytes" in charts else "",
    )


def _names(facts: Facts) -> dict[str, str]:
    return {told.kind: f"{told.name} ({told.record.spec.id})" for told in facts.all}


def _sites(facts: Facts, charts: dict[str, Chart]) -> str:
    cards = [
        card(title, plots.draw(charts[name]), caption)
        for name, title, caption in (
            ("sites", "Accuracy by site, in percent", "Told by the sites' own histories."),
            (
                "distribution",
                "Sites by accuracy, in percent",
                "From the sums of all evaluations: no names in it.",
            ),
        )
        if name in charts
    ]
    rows = [
        _fairness_row(told, facts, part)
        for part in ("test", "shifted")
        for told in facts.all
        if told.measured.final_of(part)
    ]
    if not rows:
        return ""
    head = ["", "mean", "pooled", "deviation", "worst tenth", "variation", "sites", "less local", "run"]
    return section(
        "fairness",
        "How evenly",
        pair(cards) if cards else "",
        table(head, rows),
        paragraph(
            "In percent, on test data, of the finished models or of the newest state that was measured. Pooled: all "
            "samples together. Deviation: the standard deviation over sites. Variation: deviation over mean. The worst "
            "tenth is known to one percent." + (_SHIFTED if facts.run.measured.final_of("shifted") else ""),
            "soft",
        ),
        _site_table(facts),
    )


_SHIFTED = (
    " Shifted: the second test of the sites that have one, of samples that came about otherwise than what they train "
    "on; its mean is over fewer sites where not all of them do."
)


def _fairness_row(told: Told, facts: Facts, part: str) -> list[str]:
    final, alone = told.measured.final_of(part), facts.find("local")
    assert final is not None
    other = alone.measured.final_of(part) if alone else None
    gain = ""
    if alone is not None and other is not None and told.kind != "local":
        hindering = differ(told, alone).hindering
        points = amounts.points(final.mean - other.mean, 2)
        gain = f"not comparable: {'; '.join(hindering)}" if hindering else points
    shares = (final.mean, final.micro, final.deviation, final.worst_decile, final.variation)
    return [
        _title(told, part),
        *("" if share != share else f"{100 * share:.2f}" for share in shares),
        str(final.sites),
        gain,
        told.record.spec.id,
    ]


def _title(told: Told, part: str) -> str:
    return told.name if part == "test" else f"{told.name}, {part}"


def _site_table(facts: Facts) -> str:
    """Every site whose history is known, with what it has in each run."""
    finals = facts.run.finals
    if not finals:
        return ""
    others = [told for told in facts.beside if told.finals]
    alone = facts.find("local")
    by_gain = site_gains(facts)
    shifted = {_title(told, "shifted"): found for told in facts.all if (found := told.finals_of("shifted"))}
    rows = [
        [
            site,
            _cell(finals, site),
            *(_cell(told.finals, site) for told in others),
            *([amounts.points(by_gain[site], 2) if site in by_gain else ""] if alone in others else []),
            *(_cell(found, site) for found in shifted.values()),
        ]
        for site in sorted(finals)
    ]
    head = [
        "site",
        facts.run.name,
        *(told.name for told in others),
        *(["less local"] if alone in others else []),
        *shifted,
    ]
    return _say_gains(by_gain) + long_table(head, rows, "sites")


def _say_gains(by_gain: dict[ClientId, float]) -> str:
    if not by_gain:
        return ""
    worst, best = min(by_gain, key=by_gain.__getitem__), max(by_gain, key=by_gain.__getitem__)
    better = sum(gain > 0 for gain in by_gain.values())
    return paragraph(
        f"Against training alone {better} of {counted(len(by_gain), 'site')} {'gains' if better == 1 else 'gain'}: "
        f"from {amounts.points(by_gain[worst])} points at {worst} to {amounts.points(by_gain[best])} at {best}."
    )


def _cell(values: dict[ClientId, float], site: ClientId) -> str:
    return f"{100 * values[site]:.2f}" if site in values else ""


def _setup(facts: Facts) -> str:
    spec = facts.run.record.spec
    said = describe(spec)
    settings = [[name, _short(value)] for name, value in sorted(spec.settings.items())]
    run = [[name, value] for name, value in sorted(spec.versions.items())]
    command = f"pfl simulate --replay {shlex.quote(str(facts.run.record.folder))} --data FOLDER"
    return section(
        "setup",
        "How to have it again",
        paragraph(
            "Everything drawn follows from the seed; who was counted stands in the journal. With the sites' data "
            "folders below one folder, the same run is played again, to the same bytes on a machine of the same class:"
        ),
        f"<pre>{escape(command)}</pre>",
        pair(
            [
                f'<div class="card"><h3>Settings of {escape(spec.method)}</h3>'
                f"{table(['', ''], settings, numbers_from=2)}</div>",
                f'<div class="card"><h3>Versions of the run</h3>{table(["", ""], run, numbers_from=2)}'
                f"<h3>Versions that made this page</h3>"
                f"{table(['', ''], [[n, v] for n, v in versions_here().items()], numbers_from=2)}</div>",
            ]
        ),
        "<details><summary>The whole specification, without its lists of tensors</summary>"
        f"<pre>{escape(json.dumps(said, indent=1, sort_keys=True, ensure_ascii=False))}</pre></details>",
    )


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unknown(facts: Facts) -> str:
    if not facts.missing:
        return ""
    items = "".join(f"<li>{escape(words)}</li>" for words in facts.missing)
    return section("missing", "What this page does not know", f"<ul>{items}</ul>")


def _foot(facts: Facts) -> str:
    beside = "".join(
        f" Beside it: {told.record.spec.id} ({told.name}, seed {told.record.spec.seed}, "
        f"{counted(len(told.record.committed), 'round')}, {told.record.status})."
        for told in facts.beside
    )
    words = (
        f"Made by pfl report, {amounts.moment(facts.made)}.{beside} Accuracies are of one run with one seed: small "
        "differences mean little. This page loads nothing from anywhere; report.json beside it holds the same facts."
    )
    return f"<footer>{paragraph(words, 'soft')}</footer>"

"""The page about one run: accuracy overall and by site, traffic, time, losses."""

from __future__ import annotations

import shlex
from html import escape

from pfl_deploy.report import formatting
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.model import Chart
from pfl_deploy.report.charts.select import draw_all
from pfl_deploy.report.facts import Facts, Told, describe, gains, seconds_until, versions_here
from pfl_deploy.report.fairness import tell_sites
from pfl_deploy.report.formatting import counted
from pfl_deploy.report.page.best_rounds import tell_best_rounds
from pfl_deploy.report.page.costs import say_bytes, tell_communication, tell_losses, tell_time
from pfl_deploy.report.page.html import card, folded, legend, page, pair, paragraph, section, table, tiles
from pfl_deploy.report.page.method import tell_method
from pfl_deploy.report.sources.evaluations import Point
from pfl_deploy.report.sources.method import explain
from pfl_server.store.comparable import Differences


def render(facts: Facts) -> str:
    """The whole page."""
    charts = draw_all(facts)
    parts = [_head(facts), _accuracy(facts, charts), tell_sites(facts, charts), tell_communication(facts)]
    parts += [
        tell_best_rounds(facts),
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
        f"{when} {record.spec.method} reaches {_say_average(facts, final)}, "
        f"{formatting.percent(final.worst_decile)} over the worst tenth of them."
    )
    others = [
        f"{100 * abs(gain):.1f} points {'above' if gain >= 0 else 'below'} {_words_of(told)}{say_own(told.differences)}"
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
            f"{formatting.percent(shifted.counts)} ({counted(shifted.sites, 'site')})."
        )
    return words


def say_own(differences: Differences) -> str:
    """The methods' own settings may differ; which do stands in the same line."""
    return f" (differing in {'; '.join(differences.own)})" if differences.own else ""


def _say_hindered(told: Told) -> str:
    """Where more than the method differs, neither run is above the other."""
    final, hindering = told.measured.final, told.differences.hindering
    if final is None or not hindering:
        return ""
    who = _words_of(told)
    reached = formatting.percent(final.counts)
    return f" {who[0].upper()}{who[1:]} reaches {reached}; not comparable: {'; '.join(hindering)}."


def _words_of(told: Told) -> str:
    return "training alone" if told.kind == "local" else told.name


def _head(facts: Facts) -> str:
    record, final = facts.run.record, facts.run.measured.final
    title = f"{record.spec.method} at {counted(len(record.sites), 'site')}"
    under_way = record.status == "running"
    state = "under way" if under_way else record.status
    badge = (
        f'<p><span class="state {escape(record.status)}">{escape(state)}</span> '
        f'<span class="soft">run {escape(record.spec.id)}, read {escape(formatting.moment(facts.made))}</span></p>'
    )
    tell = {} if final is None else _tiles_of(facts, final)
    return (
        f"<h1>{escape(title)}</h1>\n{badge}\n{paragraph(record.words) if record.words else ''}"
        f"{paragraph(summarise(facts), 'lead')}\n"
        f"{tiles({**tell, **_tiles_of_run(facts)})}"
    )


def _tiles_of(facts: Facts, final: Point) -> dict[str, str]:
    made = {
        _TILES[facts.run.reading.acc_average]: formatting.percent(final.counts),
        "worst tenth of the sites": formatting.percent(final.worst_decile),
    }
    if facts.run.best is not None and facts.run.measured.best is not None:
        when = f"after round {facts.run.measured.best.after}"
        per_client = facts.run.reading.best_mode == "per_client"
        made["best, each site after its own best round" if per_client else f"best mean, {when}"] = (
            formatting.percent(facts.run.best)
        )
    if facts.run.overfitting is not None:
        made["points from the best to the last"] = f"{100 * facts.run.overfitting:.1f}"
    for told in facts.beside:
        gain = gains(facts).get(told.kind)
        if gain is not None:
            made[f"points against {_words_of(told)}"] = formatting.points(gain)
    return made


_TILES = {
    "macro": "mean accuracy on the sites' test data",
    "micro": "accuracy on all sites' test data together",
}


def _say_average(facts: Facts, point: Point) -> str:
    over = counted(point.sites, "site")
    if facts.run.reading.is_pooled:
        return f"{formatting.percent(point.counts)} over all test samples of {over} together"
    return f"{formatting.percent(point.counts)} on average over {over}"


def _tiles_of_run(facts: Facts) -> dict[str, str]:
    record, traffic = facts.run.record, facts.run.traffic
    crossed = traffic.crossed(measured=traffic.is_measured)
    total = sum(one.total for one in crossed.values())
    made = {
        "rounds of those planned": f"{len(record.committed)} / {record.spec.rounds}",
        "crossed the network" if traffic.is_measured else "to cross a network": formatting.size(total),
    }
    last = max((tried.round for tried in record.committed), default=0)
    seconds = seconds_until(facts.run, last)
    if seconds:
        made["from the first round to the last"] = formatting.duration(seconds)
    return made


def _accuracy(facts: Facts, charts: dict[str, Chart]) -> str:
    headline = facts.run.measured.headline[0]
    when = "before a round's training, with" if headline.startswith("pre/") else "right after training on"
    words = (
        f"Each site measures the method's own prediction on its own test data, {when} the state a round begins with; "
        "points stand at the number of rounds trained before. The band is one standard deviation over sites, the "
        "dashed line the worst tenth of the sites."
    )
    if facts.run.reading.is_pooled:
        words += " Accuracies are over all test samples together: a site counts by how many it has."
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
        card(title, svg.draw(charts[name]), notes.get(name, ""))
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
        folded("The whole specification, without its lists of tensors", said),
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
        f"Made by pfl report, {formatting.moment(facts.made)}.{beside} Accuracies are of one run with one seed: small "
        "differences mean little. This page loads nothing from anywhere; report.json beside it holds the same facts."
    )
    return f"<footer>{paragraph(words, 'soft')}</footer>"

"""The demo's report: accuracy, data, cost, traffic, and how to play the run again."""

from __future__ import annotations

from html import escape
from math import sqrt

from pfl_deploy.demo.findings import Findings, Method, Part
from pfl_deploy.report import formatting
from pfl_deploy.report.charts import svg
from pfl_deploy.report.charts.select import bars_by_site, columns_by_round, curves_over_rounds
from pfl_deploy.report.page.accuracy_table import Column, show_accuracies
from pfl_deploy.report.page.html import (
    card,
    figure,
    folded,
    legend,
    page,
    pair,
    paragraph,
    section,
    table,
    tiles,
)
from pfl_deploy.report.page.page import say_own

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def render(findings: Findings) -> str:
    """The whole page."""
    count = len(findings.sites)
    many = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    title = f"{many} sites trained together, and no sample left its site"
    parts = [_head(title, findings), _result(findings), _curves(findings), _sites(findings)]
    return page(title, [*parts, _travel(findings), _time(findings), _setup(findings), _foot()])


def verdict(findings: Findings) -> str:
    """Who leads, on average and where not: said as it is, and of methods alone that differ in nothing else."""
    real = findings.real
    others = sorted(findings.methods[:-1], key=lambda method: -method.mean)
    listed = ", ".join(_listed(method) for method in others)
    words = (
        f"After {findings.rounds} rounds {real.title} reaches {formatting.percent(real.mean)} on average over "
        f"the sites' own test data, beside {listed}."
    )
    fair = [method for method in others if method.differences.comparable]
    return words + _by_site(
        findings, fair, "No other method" if fair == others else "No other comparable method"
    )


def _by_site(findings: Findings, others: list[Method], nobody: str) -> str:
    """At how many sites the demo's method is the best, and where it is not."""
    if not others:
        return ""
    real, words = findings.real, ""
    ahead = [site for site in findings.sites if all(real.final[site] >= o.final[site] for o in others)]
    behind = [site for site in findings.sites if site not in ahead]
    if not behind:
        words += f" {nobody} is better at any site."
    elif ahead:
        words += f" {nobody} is better at {len(ahead)} of {len(findings.sites)} sites."
    for site in behind:
        best = max(others, key=lambda other: other.final[site])
        gap = best.final[site] - real.final[site]
        words += f" At {site} {_beside(best.title)} is ahead by {100 * gap:.1f} points."
    return words


def _listed(method: Method) -> str:
    """A yardstick, with what differs in the same line."""
    return f"{formatting.percent(method.mean)} {_beside(method.title)}{say_differences(method)}"


def say_differences(method: Method) -> str:
    """The differences from the demo's method; settings chosen for each alike are named as the methods' own."""
    differences = method.differences
    if differences.hindering:
        return f" (not comparable: {'; '.join(differences.hindering)})"
    return say_own(differences)


def _beside(title: str) -> str:
    return "training alone" if title == "Alone" else title


def _head(title: str, findings: Findings) -> str:
    sent = sum(traffic.sent for traffic in findings.traffic.values())
    real = findings.real
    facts = {
        f"mean accuracy, {real.title}": formatting.percent(real.mean),
        **{f"mean accuracy, {_beside(m.title)}": formatting.percent(m.mean) for m in findings.methods[:-1]},
        f"left the sites in {findings.rounds} rounds": formatting.size(sent),
        f"{real.processes} processes trained {real.title}": f"{real.seconds:.0f} s",
    }
    return f"<h1>{escape(title)}</h1>\n{paragraph(verdict(findings), 'lead')}\n{tiles(facts)}"


def _result(findings: Findings) -> str:
    kinds = findings.kinds
    names = {kind: f"{method.title}: {method.sense}" for kind, method in kinds.items()}
    groups = {site: {kind: m.final[site] for kind, m in kinds.items()} for site in findings.sites}
    groups["mean"] = {kind: m.mean for kind, m in kinds.items()}
    ordered = (findings.real, *findings.methods[:-1])
    columns = [Column(method.title, method.final, method.shifted) for method in ordered]
    return section(
        "result",
        "What each site has of it",
        legend(names),
        pair([card("Accuracy by site, in percent", svg.draw(bars_by_site(groups)))]),
        show_accuracies(columns, alone=columns[1], comparable=ordered[1].differences.comparable),
        paragraph(_doubt(findings), "soft"),
    )


_SHIFTED = (
    " Shifted: a second test, of samples that came about otherwise than those a site trains on, where a site has one; "
    "it is in none of the other figures."
)


def _doubt(findings: Findings) -> str:
    """How far such figures can be trusted."""
    tests = [site.counts.get("test", 0) for site in findings.sites.values()]
    if not all(tests):
        return "One seed was played: small differences mean little."
    worst = max(
        sqrt(value * (1 - value) / count)
        for method in findings.methods
        for value, count in zip(method.final.values(), tests, strict=True)
    )
    return (
        f"Percent of each site's own test samples ({min(tests)} at the least), after the last round. One standard "
        f"error of a single figure is up to {100 * worst:.1f} points, and one seed was played: small differences mean "
        "little. The settings were chosen on validation data, never on these."
        + (_SHIFTED if findings.real.shifted else "")
    )


def _curves(findings: Findings) -> str:
    cards = []
    for site in findings.sites:
        series = {kind: method.curves[site] for kind, method in findings.kinds.items()}
        chart = curves_over_rounds(f"{site}: accuracy over rounds", series, findings.rounds)
        cards.append(card(site, svg.draw(chart)))
    return section(
        "curves",
        "Round by round",
        paragraph(
            "Accuracy on the site's own test data, in percent, by the number of rounds trained before.",
            "soft",
        ),
        legend({kind: method.title for kind, method in findings.kinds.items()}),
        pair(cards),
    )


def _sites(findings: Findings) -> str:
    cards = []
    for name, site in findings.sites.items():
        strip = (
            f'<img alt="one sample of each class" src="data:image/png;base64,{site.strip}">'
            if site.strip
            else ""
        )
        counts = ", ".join(f"{count} {part}" for part, count in site.counts.items())
        cards.append(card(name, strip, ". ".join(filter(None, (counts, site.licence)))))
    return section(
        "sites",
        "Whose data",
        paragraph(
            "The same classes at every site, in pictures of different kinds. Each row stayed at its site.",
            "soft",
        ),
        pair(cards),
    )


def _travel(findings: Findings) -> str:
    rows = [
        [site, str(t.uploads), formatting.size(t.sent), str(t.downloads), formatting.size(t.received)]
        for site, t in findings.traffic.items()
    ]
    head = ["site", "uploads", "left the site", "downloads", "came in"]
    shown = [(part.name, float(part.numbers), "run" if part.travels else "stays") for part in findings.parts]
    counted = ", ".join(f"{formatting.size(size)} {way}" for way, size in sorted(findings.counters.items()))
    return section(
        "travel",
        "What travelled, and what stayed",
        legend({"run": "travels: added to the others' and averaged", "stays": "stays in the site's vault"}),
        figure(svg.divided_bar("the network's numbers by module", shown)),
        table(
            ["module", "", "tensors", "numbers"], [_part_row(part) for part in findings.parts], numbers_from=2
        ),
        table(head, rows),
        paragraph(
            "What left is taken from each site's own audit.jsonl, the updates with a receipt; what came in are "
            "the tasks in its history with the sizes that the run pins, the first model included. Transport "
            f"overhead is not in it. The coordinator's own counters say: {counted or 'nothing'}.",
            "soft",
        ),
    )


def _part_row(part: Part) -> list[str]:
    way = "travels" if part.travels else "stays"
    return [part.name, f"{way}: {', '.join(part.kinds)}", str(part.tensors), f"{part.numbers:,}"]


def _time(findings: Findings) -> str:
    real = findings.real
    rows = [
        [
            method.title,
            "real processes, mutual TLS" if method is real else "pfl simulate, sites take turns",
            f"{method.start_seconds:.1f}",
            f"{sum(method.round_seconds) / max(len(method.round_seconds), 1):.2f}",
            f"{method.seconds:.1f}",
            str(method.processes),
        ]
        for method in findings.methods
    ]
    head = ["", "how", "until round 1 (s)", "mean round (s)", "in all (s)", "processes"]
    seconds = columns_by_round([*enumerate(real.round_seconds, start=1)])
    yardsticks = " and ".join(method.title for method in findings.methods[:-1])
    return section(
        "time",
        "What it took",
        pair(
            [
                card(
                    "Seconds by round",
                    svg.draw(seconds),
                    f"{real.title}: from a round's opening to its closing.",
                )
            ]
        ),
        table(head, rows, numbers_from=2),
        paragraph(
            f"{real.title} was trained by one coordinator and {len(findings.sites)} site daemons, each with a trainer "
            f"process of its own, over loopback sockets. {yardsticks} were played side by side afterwards, each inside "
            "one process: the same programs without network, which end in the same bytes. Their times are therefore "
            f"not to be compared with {real.title}'s. Everything together took {findings.seconds:.0f} s.",
            "soft",
        ),
    )


def _setup(findings: Findings) -> str:
    rows = [
        [m.title, " ".join(f"{name}={value}" for name, value in sorted(m.settings.items()))]
        for m in findings.methods
    ]
    return section(
        "setup",
        "How to have it again",
        paragraph(
            "Everything drawn follows from the seed. On a machine of the same class, with the same versions, this "
            "specification ends in the same bytes."
        ),
        table(["method", "settings"], rows, numbers_from=2),
        table(
            ["", "versions and machine"],
            [[k, v] for k, v in sorted(findings.machine.items())],
            numbers_from=2,
        ),
        folded("The run's specification", findings.spec),
    )


def _foot() -> str:
    words = (
        "Made by pfl demo. Sites and coordinator spoke by mutual TLS, with certificates of the federation's own "
        "authority. This page loads nothing from anywhere."
    )
    return f"<footer>{paragraph(words, 'soft')}</footer>"

"""Questions to Prometheus about what is chosen above the panels."""

from __future__ import annotations

from pfl_deploy.dashboards.building import Query

_CHOSEN = 'job=~"$job", instance=~"$instance"'


def ask_coordinator(expr: str, legend: str = "") -> Query:
    """`@` stands for the chosen coordinators; what is asked is of the chosen run alone."""
    return Query(f'({_choose(expr)}) and on (job, instance) pfl_run_info{{run=~"$run"}}', legend)


def ask_site(expr: str, legend: str = "") -> Query:
    """`@` stands for the chosen programs; what is asked is of the chosen site alone."""
    return Query(f'({_choose(expr)}) and on (job, instance) pfl_site_info{{site=~"$site"}}', legend)


def mean_of(summary: str, label: str) -> str:
    """What it took on average in the chosen window, by a label."""
    per = f"by (job, instance, {label})"
    return f"sum {per} (rate({summary}_sum@[$window])) / sum {per} (rate({summary}_count@[$window]))"


def gained(counter: str) -> str:
    """How much a counter grew in the chosen window; one that began in it grew from 0, which `increase` cannot know."""
    return f"(({counter} unless {counter} offset $window) or increase({counter}[$window]))"


def _choose(expr: str) -> str:
    return expr.replace("@{", "{" + _CHOSEN + ", ").replace("@", "{" + _CHOSEN + "}")

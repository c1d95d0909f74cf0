"""Queries to Prometheus, restricted to the choices above the panels."""

from __future__ import annotations

from pfl_deploy.monitoring.dashboards.build import Query

_CHOSEN = 'job=~"$job", instance=~"$instance"'
_SHOWN = f'pfl_run_info{{{_CHOSEN}, run=~"$run"}}'


def ask_coordinator(expr: str, legend: str = "") -> Query:
    """`@` stands for the chosen coordinators; each series has the name of its run, one of those that are chosen."""
    named = f"({_choose(expr)}) * on (job, instance) group_left (run) {_SHOWN}"
    return Query(named, f"{legend} {{{{run}}}}")


def ask_alone(expr: str, legend: str) -> Query:
    """The same without the run's name, at moments at which one run alone is shown: for what frames its lines."""
    alone = f"count(count by (run) ({_SHOWN})) == 1"
    return Query(f"({_choose(expr)}) and on (job, instance) {_SHOWN} and on () ({alone})", legend)


def ask_site(expr: str, legend: str = "") -> Query:
    """`@` stands for the chosen programs; what is asked is of the chosen site alone."""
    return Query(f'({_choose(expr)}) and on (job, instance) pfl_site_info{{site=~"$site"}}', legend)


def mean_of(summary: str, label: str) -> str:
    """The average duration in the chosen window, by a label."""
    per = f"by (job, instance, {label})"
    return f"sum {per} (rate({summary}_sum@[$window])) / sum {per} (rate({summary}_count@[$window]))"


def when_running(expr: str) -> str:
    """Only while rounds are played: neither before a run nor after it."""
    return f'{expr} and on (job, instance) pfl_run_state@{{state="running"}} == 1'


def gained(counter: str) -> str:
    """The growth of a counter in the chosen window; one that began in it grew from 0, which `increase` cannot know."""
    return _grown(counter, f"{counter} offset $window")


def gained_in_run(counter: str) -> str:
    """The same of a coordinator: one that comes back has counted before, and that is no growth in this window."""
    back = (
        'pfl_run_info@{run!=""} and on (run) last_over_time(pfl_run_info[6h] offset $window) '
        "unless on (job, instance) pfl_run_info offset $window"
    )
    return _grown(counter, f"{counter} offset $window unless on (job, instance) ({back})")


def _grown(counter: str, known: str) -> str:
    return f"(({counter} unless {known}) or increase({counter}[$window]))"


def _choose(expr: str) -> str:
    return expr.replace("@{", "{" + _CHOSEN + ", ").replace("@", "{" + _CHOSEN + "}")

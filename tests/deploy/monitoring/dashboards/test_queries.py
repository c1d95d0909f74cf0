"""Queries are restricted to what is chosen above the panels."""

from __future__ import annotations

from pfl_deploy.monitoring.dashboards import queries

CHOSEN = 'job=~"$job", instance=~"$instance"'


def test_every_number_is_of_the_chosen_programs() -> None:
    """With labels of its own and without."""
    query = queries.ask_site('a@ + b@{kind="train"}')
    assert query.expr.startswith(f'(a{{{CHOSEN}}} + b{{{CHOSEN}, kind="train"}}) and on (job, instance)')
    assert query.expr.endswith('pfl_site_info{site=~"$site"}')


def test_a_coordinators_line_has_the_name_of_its_run() -> None:
    """Behind the words of its legend."""
    query = queries.ask_coordinator("a@", "lost")
    assert "lost {{run}}" == query.legend
    assert (
        f'(a{{{CHOSEN}}}) * on (job, instance) group_left (run) pfl_run_info{{{CHOSEN}, run=~"$run"}}'
        == query.expr
    )


def test_a_counter_that_began_in_the_window_grew_from_zero() -> None:
    """Its value is its growth; one that was there before has its increase."""
    assert "((c@ unless c@ offset $window) or increase(c@[$window]))" == queries.gained("c@")


def test_a_mean_is_a_sum_over_a_count() -> None:
    """By the same labels on both sides of the stroke."""
    by = "by (job, instance, stage)"
    assert f"sum {by} (rate(s_sum@[$window])) / sum {by} (rate(s_count@[$window]))" == queries.mean_of(
        "s", "stage"
    )

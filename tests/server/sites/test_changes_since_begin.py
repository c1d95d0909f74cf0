"""What has changed since a run was begun is said when it goes on: a site's data, the product's code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pfl_common.spec.messages import Event
from pfl_server.sites import changes_since_begin
from pfl_server.sites.changes_since_begin import OTHER_CODE, OTHER_DATA, DataWatch, warn_of_other_code
from pfl_server.telemetry.event_log import Events
from tests.server.support.federation import DESCRIPTION, build_spec
from tests.server.support.scene import Scene


def warnings(events: tuple[Event, ...]) -> list[str]:
    """What the operator is warned of, oldest first."""
    return [event.words for event in reversed(events) if event.level == "warning"]


def test_a_site_that_comes_back_with_other_data() -> None:
    """Each change is said once, however often the site joins; the same data, and none to compare, are no news."""
    events = Events()
    watch = DataWatch(replace(build_spec(), data={"a": "11", "b": "22"}), events)
    for site, data in (("a", "11"), ("b", ""), ("late", "33"), ("a", "44"), ("a", "44"), ("a", "55")):
        watch.look(site, replace(DESCRIPTION, data=data))
    assert [f"a {OTHER_DATA}", f"a {OTHER_DATA}"] == [
        words.removesuffix(" (2 times)") for words in warnings(events.newest()) for _ in range(2)
    ]
    assert f"a {OTHER_DATA} (2 times)" == events.newest()[0].words


async def test_a_fleet_looks_at_who_joins(scene: Scene) -> None:
    """The site goes on: it is registered as every other."""
    scene.fleet.spec.data["a"] = "11"
    assert None is not await scene.fleet.join("a", replace(DESCRIPTION, data="22"))
    assert [f"a {OTHER_DATA}"] == warnings(scene.fleet._record.events.newest())


@pytest.mark.parametrize(("then", "told"), [("0ld", [OTHER_CODE]), ("n3w", []), (None, [])])
def test_a_run_that_goes_on_with_other_code(
    monkeypatch: pytest.MonkeyPatch, then: str | None, told: list[str]
) -> None:
    """Of a run that an older release began nothing is known."""
    monkeypatch.setattr(changes_since_begin.code_digest, "digest", lambda: "n3w")
    events = Events()
    warn_of_other_code(replace(build_spec(), versions={"code": then} if then else {}), events)
    assert told == warnings(events.newest())

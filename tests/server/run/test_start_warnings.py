"""What the operator is warned of before the first round."""

from __future__ import annotations

import json
from types import SimpleNamespace

from pfl_server.run.start_warnings import warn_of_baselines, warn_of_classes
from pfl_server.store.baselines import Baseline
from pfl_server.store.comparable import Differences
from pfl_server.telemetry.event_log import Events


def tell(events: Events) -> list[tuple[str, str]]:
    return [(event.level, event.words) for event in events.newest()]


def test_a_baseline_that_is_not_comparable() -> None:
    """Named by its method and run, with all that differs; one that is comparable is not mentioned."""
    events = Events()
    other = Baseline("run-1", 0.5, Differences(hindering=("rounds 2, there 1", "other data")))
    warn_of_baselines({"local": other, "fedavg": Baseline("run-2", 0.5, Differences())}, events)
    words = "the gain over local (run-1) is not comparable: rounds 2, there 1; other data"
    assert [("warning", words)] == tell(events)


def test_class_names_that_look_alike() -> None:
    """Said to the operator in the same words that the sites get; sites that agree hear nothing."""
    for names, several in ((["Cat", "dog"], True), (["cat", "dog"], False)):
        sites = {site: json.dumps({"classes": own}) for site, own in (("a", ["cat", "dog"]), ("b", names))}
        events, journal = Events(), SimpleNamespace(sites=lambda sites=sites: sites)
        found = warn_of_classes(SimpleNamespace(journal=journal), events, fixed=False)
        assert several == bool(found)
        assert {("warning", words) for words in found} == set(tell(events))

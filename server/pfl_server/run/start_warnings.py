"""Warns the operator, before a run's first round, of class names and baselines that do not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping

import structlog

from pfl_server.decisions.class_names import remark
from pfl_server.store.baselines import Baseline
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Events

log = structlog.get_logger("pfl.run")


def warn_of_baselines(baselines: Mapping[str, Baseline], events: Events) -> None:
    """Warn of baselines with other settings or data: the gain over them is not the method's alone."""
    for method, one in baselines.items():
        if one.differences.hindering:
            words = f"the gain over {method} ({one.run}) is not comparable: {'; '.join(one.differences.hindering)}"
            log.warning(words)
            events.add(words, "warning")


def warn_of_classes(books: Books, events: Events, *, fixed: bool) -> tuple[str, ...]:
    """Warn the operator of odd class names; gives the warnings, for the sites."""
    sites = {site: json.loads(text)["classes"] for site, text in books.journal.sites().items()}
    found = remark(sites, fixed=fixed)
    for words in found:
        log.warning("classes", warning=words)
        events.add(words, "warning")
    return found

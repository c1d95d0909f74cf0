"""The tables of a run's journal, and the steps that bring a journal of an older version to the newest.

The version is the number of steps a journal has been through, kept in the file as SQLite's `user_version`. To change
the schema add a step at the end; one that stands here is never changed, since journals out there went through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # each column holds something else

from pydantic import JsonValue, TypeAdapter

# Journals written before there were versions have some of these tables, or all, in this very form.
_FIRST = (
    """
    create table if not exists run (
        id text primary key, spec text not null, status text not null, words text not null)
    """,
    "create table if not exists site (name text primary key, description text not null, late integer not null)",
    """
    create table if not exists attempt (
        round integer, attempt integer, candidates text not null, cohort text not null, drops text not null,
        status text not null, counted text not null default '[]', losses text not null default '{}',
        reason text not null default '', primary key (round, attempt))
    """,
    """
    create table if not exists receipt (
        round integer, attempt integer, site text, key text not null, digest text not null, spooled text not null,
        signature text not null default '', primary key (round, attempt, site))
    """,
    "create table if not exists handed (key text, site text, since integer not null, primary key (key, site))",
    "create table if not exists report (key text, site text, scores text not null, primary key (key, site))",
    "create table if not exists score (key text primary key, scores text not null)",
    """
    create table if not exists course (
        round integer, attempt integer, opened real not null, ended real not null, seconds text not null,
        bytes text not null, primary key (round, attempt))
    """,
    "create table if not exists goodbye (site text primary key, at real not null)",
    """
    create table if not exists diagnosis (
        round integer, attempt integer, numbers text not null, primary key (round, attempt))
    """,
    """
    create table if not exists loss (
        round integer, attempt integer, numbers text not null, primary key (round, attempt))
    """,
    """
    create table if not exists opening (
        round integer, attempt integer, at real not null, primary key (round, attempt))
    """,
    "create table if not exists reading (moment text primary key, numbers text not null)",
)

_JUDGED = (
    "create table if not exists change (round integer primary key, numbers text not null)",
    "create table if not exists fallback (round integer primary key, back_to integer not null)",
)
_REMOVALS = ("create table if not exists removal (site text primary key, at real not null)",)
# From which attempt on who could be drawn: an attempt's own list is empty since then, and was in each before.
_CANDIDATES = (
    """
    create table if not exists candidates (
        round integer, attempt integer, names text not null, primary key (round, attempt))
    """,
)

STEPS: tuple[tuple[str, ...], ...] = (_FIRST, _JUDGED, _REMOVALS, _CANDIDATES)
"""Statements by step: those at place 0 lead from version 0 to 1, and so on."""

_OBJECT = TypeAdapter(dict[str, JsonValue])
_SITES, _REASONS = TypeAdapter(list[str]), TypeAdapter(dict[str, str])
_COUNTS, _NUMBERS = TypeAdapter(dict[str, int]), TypeAdapter(dict[str, float])
_SCORES = TypeAdapter(dict[str, list[float]])
_READING = TypeAdapter(tuple[dict[str, int], dict[str, tuple[int, float]], dict[str, int]])

STRUCTURED: Mapping[str, Mapping[str, TypeAdapter[Any]]] = {
    "run": {"spec": _OBJECT},
    "site": {"description": _OBJECT},
    "attempt": {
        "candidates": _SITES,
        "cohort": _SITES,
        "drops": _SITES,
        "counted": _SITES,
        "losses": _REASONS,
    },
    "candidates": {"names": _SITES},
    "report": {"scores": _SCORES},
    "score": {"scores": _SCORES},
    "course": {"seconds": _NUMBERS, "bytes": _COUNTS},
    "diagnosis": {"numbers": _NUMBERS},
    "loss": {"numbers": _COUNTS},
    "reading": {"numbers": _READING},
    "change": {"numbers": _NUMBERS},
}
"""Columns that hold JSON, by table, at the newest version, and what stands there."""

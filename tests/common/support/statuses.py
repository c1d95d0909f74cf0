"""Every status that can be told, the largest numbers included."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from pfl_common.spec.messages import Event, Level, Point, RunStatus, SitePhase, SiteStatus

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**64 - 1)
seconds = st.floats(-1e12, 1e12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
measured = st.none() | numbers
told = st.dictionaries(words, numbers, max_size=3)
names = st.lists(words, max_size=3).map(tuple)
sites = st.builds(
    SiteStatus, words, words, seconds, words, st.sampled_from(get_args(SitePhase)), counts, names
)
points = st.builds(
    Point,
    *(counts, seconds, seconds, counts, counts, counts),
    *(measured, measured, measured, counts, counts, told, counts),
)
events = st.builds(Event, seconds, st.sampled_from(get_args(Level)), words)
facts = st.recursive(
    st.none() | words | numbers | st.integers(-(2**64), 2**64),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
statuses = st.builds(
    RunStatus,
    *(words, words, st.sampled_from(["gathering", "running", "finishing", "finished", "stopped"]) | words),
    *(counts, counts, counts, words, names, st.lists(sites, max_size=3).map(tuple), told, seconds, seconds),
    st.dictionaries(words | st.sampled_from(["sites", "chosen", "shape"]), facts, max_size=3),
    st.lists(points, max_size=3).map(tuple),
    told,
    st.lists(events, max_size=3).map(tuple),
    *(seconds, counts, counts, counts, names, st.dictionaries(words, words, max_size=2)),
)

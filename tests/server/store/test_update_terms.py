"""What a run takes of a site's update follows from its specification, its method and what the site declared."""

from __future__ import annotations

from pathlib import Path

import torch

from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_server.store.run_store import build_template
from pfl_server.store.update_terms import list_by_phase
from tests.server.support.federation import DESCRIPTION, build_header, build_spec, open_run

TASK = Task(Kind.TRAIN, 1, 2)


def test_terms_of_a_site(tmp_path: Path) -> None:
    """Its samples are those it told when it joined, and told again; one that is not known told none."""
    spec = build_spec(largest_weight=1000.0, largest_change=5.0, largest_norm=7.0)
    books = open_run(tmp_path, spec)
    terms = books.spool.terms.of(build_header(spec, "a", TASK))
    assert (DESCRIPTION.samples, 1000.0, 7.0, 5.0) == (
        terms.declared,
        terms.largest_weight,
        terms.largest_norm,
        terms.largest_change,
    )
    assert "count" == terms.of("weight.head.weight")
    books.journal.register("a", DESCRIPTION.to_json().replace('"samples":100', '"samples":7'), late=False)
    books.journal.register("b", DESCRIPTION.to_json().replace('"samples":100', '"samples":null'), late=False)
    told = [books.spool.terms.of(build_header(spec, site, TASK)).declared for site in ("a", "b", "z")]
    assert [7, None, None] == told
    books.journal.close()


def test_what_an_update_is_compared_with(tmp_path: Path) -> None:
    """The state of the round under way; before and after it nothing."""
    spec = build_spec()
    books = open_run(tmp_path, spec)
    header = build_header(spec, "a", TASK)
    assert {} == books.spool.terms.of(header).sent
    books.compare_with(State({"head.bias": torch.ones(2)}))
    assert ["sum.head.bias"] == list(books.spool.terms.of(header).sent)
    books.compare_with(None)
    assert {} == books.spool.terms.of(header).sent
    books.journal.close()


def test_each_phase_has_its_own() -> None:
    """What is summed differs from phase to phase."""
    spec = build_spec("lgfedavg", settings={"pretrain_rounds": 1})
    found = list_by_phase(build_template(spec), spec)
    assert ["full", "head"] == sorted(found)
    assert found["head"].keys() < found["full"].keys()

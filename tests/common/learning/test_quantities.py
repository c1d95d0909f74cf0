"""What the tensors of each method's update are, as both sides know it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from pfl_common import methods
from pfl_common.learning.method import Participant, Settings
from pfl_common.learning.quantities import list_quantities
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Json, Model, RunSpec
from pfl_common.tensors.update import Quantity


def count(method: str, *names: str, phase: str = "train", **settings: Json) -> dict[str, Quantity]:
    """The quantities of an update with these tensors, on a network with batch norms."""
    model = Model("resnet8", (3, 16, 16), ("cat", "dog"))
    manifest = tuple(Entry(name, "float32", ()) for name in names)
    spec = RunSpec("r", method, settings, model, ("a",), rounds=3, seed=1)
    spec = replace(spec, manifests={f"train/{phase}/up": manifest})
    with torch.device("meta"):
        return list_quantities(methods.build_participant(spec), spec, phase)


def test_weights_follow_the_settings() -> None:
    """Samples, or 1; methods of their own say so, and so does a phase."""
    name = "weight.encoder.w"
    for method in sorted(set(methods.names()) - {"fedproto", "local", "fedcac", "fedamp", "fedfomo"}):
        assert {name: "count"} == count(method, name, aggregation="samples"), method
        assert {name: "one"} == count(method, name, aggregation="uniform"), method
    name = "weight.prototypes"
    assert {name: "mask"} == count("fedproto", name)
    assert {name: "count"} == count("fedproto", name, proto_weight="count")
    name = "weight.gram"
    assert {name: "count"} == count(
        "spherefed", name, phase="calibrate", aggregation="uniform", calibrate=True
    )


def test_every_variance_is_known_by_its_layer() -> None:
    """Summed or shown, whatever the layer is called; a name that only ends so is none."""
    with torch.device("meta"):
        spec = RunSpec("r", "fedavg", {}, Model("resnet8", (3, 16, 16), ("x", "y")), ("a",), rounds=1, seed=1)
        names = [n for n in methods.build_participant(spec).state_dict() if n.endswith("running_var")]
    assert names
    kinds = count("fedavg", *(f"sum.{name}" for name in names), "sum.other.running_var", "sum.encoder.w")
    assert {"variance": len(names), "value": 2} == Counter(kinds.values())
    assert {"variance"} == set(count("fedcac", *(f"show.w.{name}" for name in names)).values())
    assert {"variance"} == set(count("fedfomo", *(f"show.model.{name}" for name in names)).values())


def test_what_is_shown_beside_a_model() -> None:
    """Counts, masks, and numbers that the method bounds itself."""
    assert ["number", "count"] == list(count("fedcac", "show.mask", "show.samples").values())
    assert ["number"] == list(count("fedfomo", "show.liked").values())
    assert ["mask"] == list(count("fedproto", "sum.known").values())


@pytest.mark.parametrize("name", ["report", "weight"])
def test_a_method_from_outside_that_weighs_in_its_own_way(name: str) -> None:
    """As long as it does not say what its weights are, they have no bound but the run's."""
    kind = type("Client", (Participant,), {name: lambda *words: None})
    client = object.__new__(kind)
    client.__dict__["settings"] = Settings()
    assert "weight" == kind.weighs(client, "train")

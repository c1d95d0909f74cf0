"""What crosses of a site's network, counted by hand, and families of numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pfl_deploy.report.sources.method import Part, explain, group, read_sharing


def spec_of(manifests: dict[str, list[str]]) -> Any:
    """A network of 6 + 2 numbers below and 4 above; parcels of these names."""
    shapes = {"body.weight": (2, 3), "body.mean": (2,), "head.weight": (4,)}
    first = [SimpleNamespace(name=name, shape=shape) for name, shape in shapes.items()]
    sent = {key: [SimpleNamespace(name=name) for name in names] for key, names in manifests.items()}
    return SimpleNamespace(init_manifest=first, manifests=sent)


def test_what_crosses_and_what_stays() -> None:
    """A tensor of a branch is the site's own of that name."""
    sharing = read_sharing(spec_of({"train/up": ["model.body.weight"], "train/down": ["body.weight"]}))
    assert (Part("body", 8, 6), Part("head", 4, 0)) == sharing.parts
    assert [2, 4] == [part.stays for part in sharing.parts]
    assert ((("body.mean", 2), ("head.weight", 4)), False) == (sharing.staying, sharing.shown)


def test_only_what_training_sends_counts() -> None:
    """A name that no tensor of the site has is none of its own."""
    sharing = read_sharing(spec_of({"evaluate/down": ["head.weight"], "train/up": ["prototypes"]}))
    assert [0, 0] == [part.shared for part in sharing.parts]


def test_single_updates_that_are_shown() -> None:
    """The branch of that name, and no tensor that only begins like it."""
    assert read_sharing(spec_of({"train/up": ["show.head.weight"]})).shown
    assert not read_sharing(spec_of({"train/up": ["shower.head.weight"]})).shown


def test_families_of_numbers() -> None:
    """What stands before the first stroke."""
    curve = {1: 0.5}
    assert {"loss": {"": curve}, "mask": {"a": curve, "b/c": curve}} == group(
        {"loss": curve, "mask/a": curve, "mask/b/c": curve}
    )


def test_a_method_of_another_release_has_no_words() -> None:
    """Its run can be read all the same."""
    assert {} == explain("gone")

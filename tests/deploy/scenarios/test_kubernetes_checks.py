"""The checks of the manifests are able to fail: each is shown one thing that is wrong, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.kubernetes_manifests import meaning, page, policies
from tests.deploy.kubernetes_manifests.planted import MISTOLD, ONLY_IN, UNSAFE, WRONG, change
from tests.deploy.kubernetes_manifests.rendering import OVERLAYS, Object, name_of, objects
from tests.deploy.kubernetes_manifests.restricted import breaches


@pytest.fixture
def items() -> list[Object]:
    """A good overlay, which holds every kind of object there is."""
    return objects("experiment")


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_seen(wrong: str) -> None:
    """One thing changed in a good overlay is complained about, in every overlay that has it."""
    name, place, value, words = WRONG[wrong]
    seen = []
    for overlay in ONLY_IN.get(wrong, OVERLAYS):
        items = objects(overlay)
        if name not in map(name_of, items):
            continue
        assert [] == [one for one in meaning.complaints(items) if words in one]
        change(found(items, name), place, value)
        seen.append([one for one in meaning.complaints(items) if words in one])
    assert seen and all(seen)


@pytest.mark.parametrize("mistold", MISTOLD)
def test_what_the_page_makes_otherwise_is_seen(
    mistold: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word changed on the operator's page, and an overlay does not find what it mounts."""
    overlay, told, instead, words = MISTOLD[mistold]
    items, text = objects(overlay), page.PAGE.read_text()
    assert [] == meaning.complaints(items)
    assert told in text
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")
    page.PAGE.write_text(text.replace(told, instead))
    assert [] != [one for one in meaning.complaints(items) if words in one]


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_what_is_not_restricted_is_seen(unsafe: str, items: list[Object]) -> None:
    """One freedom given to a good overlay's pod is complained about, and nothing else."""
    path, value, words = UNSAFE[unsafe]
    change(found(items, "StatefulSet/site"), path, value)
    [complaint] = breaches(items)
    assert words in complaint


def without_denial(items: list[Object]) -> None:
    """Only what other policies close is closed."""
    items.remove(found(items, "NetworkPolicy/deny-all"))


def without_ports(items: list[Object]) -> None:
    """A rule with no ports covers all of them."""
    del found(items, "NetworkPolicy/sites-to-coordinator")["spec"]["ingress"][0]["ports"]


def from_everywhere(items: list[Object]) -> None:
    """An empty selector of namespaces takes all of them."""
    peers = found(items, "NetworkPolicy/sites-to-coordinator")["spec"]["ingress"][0]["from"]
    peers[0]["namespaceSelector"] = {}


def one_side(items: list[Object]) -> None:
    """The caller's side stays shut."""
    items.remove(found(items, "NetworkPolicy/site-to-coordinator"))


def other_labels(items: list[Object]) -> None:
    """The opening is for pods that are called otherwise."""
    change(
        found(items, "NetworkPolicy/site-to-coordinator"),
        ("spec", "podSelector", "matchLabels", "app.kubernetes.io/component"),
        "place",
    )


@pytest.mark.parametrize(
    ("change_it", "caller", "called", "port", "before"),
    [
        (without_denial, "coordinator", "world", 443, False),
        (without_denial, "neighbour", "world", 443, False),
        (without_ports, "site", "coordinator", 7480, False),
        (from_everywhere, "stranger", "coordinator", 7443, False),
        (one_side, "site", "coordinator", 7443, True),
        (other_labels, "site", "coordinator", 7444, True),
    ],
)
def test_a_policy_that_lets_through_something_else(
    change_it: Callable[[list[Object]], None],
    caller: str,
    called: str,
    port: int,
    before: bool,
    items: list[Object],
) -> None:
    """Opened too far or not far enough, the same question has the other answer."""
    peers = {**policies.CLUSTER, **policies.pods(items)}

    def asked() -> bool:
        # A site's own way out hides a coordinator's door that is open too wide: it is given all ways out here.
        open_out = {"egress": [{}], "policyTypes": ["Egress"], "podSelector": {}}
        way_out = {"kind": "NetworkPolicy", "metadata": {"namespace": "pfl-experiment"}, "spec": open_out}
        looked_at = [*items, way_out] if change_it is without_ports else items
        return policies.may_call(looked_at, peers[caller], peers[called], port=port)

    assert before == asked()
    change_it(items)
    assert before != asked()


def found(items: list[Object], name: str) -> Object:
    """An object by kind and name."""
    return next(item for item in items if name_of(item) == name)

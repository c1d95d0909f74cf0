"""What FedProx, FedRep, LG-FedAvg, Per-FedAvg, pFedMe, Ditto and FedPHP have in common: what travels, how sites count,
and whose settings their presets are.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
from torch import nn

from pfl_common.methods import load
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

LINEAR = {"encoder.0.weight", "encoder.0.bias"}
SCALE = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
HEAD = {"head.weight", "head.bias"}
WHOLE, ENCODER = LINEAR | HEAD, LINEAR

SHARED = {
    "ditto": WHOLE,
    "fedphp": WHOLE,
    "fedprox": WHOLE,
    "fedrep": ENCODER,
    "lgfedavg": HEAD,
    "perfedavg": WHOLE,
    "pfedme": WHOLE,
}
"""What travels of a network without batch norm."""
PAPER: dict[str, dict[str, Json]] = {
    "dualfed": {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1, "bn_policy": "local_stats"},
    "fedpick": {"lr": 0.01, "momentum": 0.5, "batch": 64, "epochs": 1, "bn_policy": "share_all"},
    "fedcp": {
        "lr": 0.005,
        "momentum": 0.0,
        "batch": 10,
        "epochs": 1,
        "drop_last": True,
        "bn_policy": "local_stats",
    },
    "fedcac": {"lr": 0.1, "momentum": 0.0, "batch": 100, "bn_policy": "local_stats"},
}
PAPER["fedcp-resnet18"] = {**PAPER["fedcp"], "lr": 0.1}
"""The settings of the papers that compare with these methods."""
PRESETS: dict[str, dict[str, dict[str, Json]]] = {
    "ditto": {
        "paper": {**PAPER["fedcp"], "mu": 1.0, "personal_epochs": 1},
        "fedcp": PAPER["fedcp"],
        "fedcp-resnet18": PAPER["fedcp-resnet18"],
    },
    "fedphp": {
        "paper": {**PAPER["fedcp"], "variant": "blend", "mu": 0.9, "lambda_": 0.01},
        "fedcp": PAPER["fedcp"],
        "fedcp-resnet18": PAPER["fedcp-resnet18"],
        "original": {
            **PAPER["fedcp"],
            "variant": "original",
            "lambda_": 0.1,
            "reg": "kd",
            "temperature": 4.0,
        },
        "lib2024": {**PAPER["fedcp"], "variant": "lib2024", "eval_point": "post"},
    },
    "fedprox": {
        "paper": {**PAPER["dualfed"], "mu": 0.01},
        "dualfed": PAPER["dualfed"],
        "fedpick": {**PAPER["fedpick"], "mu": 0.01},
        "fedcp": {**PAPER["fedcp"], "mu": 0.001},
        "fedcp-resnet18": {**PAPER["fedcp-resnet18"], "mu": 0.001},
    },
    "fedrep": {
        "paper": {**PAPER["dualfed"], "head_epochs": 4, "body_epochs": 1},
        "dualfed": {**PAPER["dualfed"], "head_epochs": 4, "body_epochs": 1},
        "fedpick": {**PAPER["fedpick"], "head_epochs": 4, "body_epochs": 1},
        "fedcp": {**PAPER["fedcp"], "head_epochs": 1, "body_epochs": 1},
        "fedcp-resnet18": {**PAPER["fedcp-resnet18"], "head_epochs": 1, "body_epochs": 1},
        "fedcac": {**PAPER["fedcac"], "head_epochs": 4, "body_epochs": 1},
    },
    "lgfedavg": {
        "paper": {**PAPER["dualfed"], "pretrain_rounds": 0},
        "dualfed": PAPER["dualfed"],
        "fedpick": {**PAPER["fedpick"], "pretrain_rounds": 0},
        "fedpick-office-caltech-10": {**PAPER["fedpick"], "pretrain_rounds": 20},
        "fedpick-domainnet": {**PAPER["fedpick"], "pretrain_rounds": 20},
        "repro": {**PAPER["dualfed"], "aggregation": "uniform"},
    },
    "perfedavg": {
        "paper": {**PAPER["fedcp"], "alpha": None, "beta": None, "passes": 1},
        "fedcp": PAPER["fedcp"],
        "fedcp-resnet18": PAPER["fedcp-resnet18"],
        "repro": {**PAPER["fedcp"], "passes": 2},
    },
    "pfedme": {
        "paper": {**PAPER["fedcp"], "K_in": 5, "lambda_": 15.0, "beta": 1.0, "eta_p": 0.01, "mu": 0.001},
        "fedcp": PAPER["fedcp"],
        "fedcp-resnet18": PAPER["fedcp-resnet18"],
        "fedcp-mnist": {**PAPER["fedcp"], "eta_p": 0.1},
        "repro": {**PAPER["fedcp"], "eval_model": "w_local", "eval_point": "post"},
    },
}
"""By method: of each preset what it has to come to."""


def module_of(name: str) -> ModuleType:
    """A method's file."""
    return import_module(f"pfl_common.methods.{name}")


@pytest.mark.parametrize(
    ("policy", "norm"),
    [("share_all", SCALE | STATISTICS), ("local_stats", SCALE), ("local_bn", set())],
)
@pytest.mark.parametrize("name", SHARED)
def test_what_travels(name: str, policy: str, norm: set[str]) -> None:
    """What is shared, less what the policy keeps of the encoder's batch norm; the vault holds all the rest."""
    client = build_client(module_of(name), norm=True, bn_policy=policy, batch=3)
    phase = "head" if name == "lgfedavg" else "train"
    expected = SHARED[name] | (norm if LINEAR <= SHARED[name] else set())

    assert expected == set(client.travels(phase))
    assert expected == client.report(build_data(), ask(phase=phase)).summed.keys()
    assert set(client.state_dict()) - expected == set(client.stays(phase))


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
@pytest.mark.parametrize("name", SHARED)
def test_how_sites_count(name: str, aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(module_of(name), aggregation=aggregation) for site in data}
    where = "head.bias" if name == "lgfedavg" else "encoder.0.bias"
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.get_parameter(where), value)
    server, phase = load(name).build_server(build_spec(name)), "head" if name == "lgfedavg" else "train"
    first, task = server.start(build_client(module_of(name)), 3), ask(phase=phase)

    after = server.close(first, gather(clients, data, task), task).state

    assert first.keys() == after.keys()
    assert [expected] * 3 == after[where].tolist()


@pytest.mark.parametrize("name", SHARED)
def test_sums_are_enough(name: str) -> None:
    """No single update is shown; only LG-FedAvg sends different sites different things."""
    method = load(name)
    assert ("", name == "lgfedavg") == (method.shows, method.per_client)


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name, presets in PRESETS.items() for preset in presets]
)
def test_a_preset_is_what_its_paper_says(name: str, preset: str) -> None:
    """Each value of it, whether it is written out or a default."""
    method, expected = load(name), PRESETS[name][preset]
    settings = method.settle(method.presets[preset])
    assert PRESETS[name].keys() == method.presets.keys()
    assert expected == {field: getattr(settings, field) for field in expected}


@pytest.mark.parametrize("name", sorted(SHARED.keys() - {"perfedavg"}))
def test_a_site_that_can_take_no_step_goes_on_as_it_is(name: str) -> None:
    """One sample has no variance, so a network with batch norm learns nothing from it; the round ends all the same."""
    client, data, task = build_client(module_of(name), norm=True), build_data(labels=(1,)), ask()
    client.receive(State.of(client, client.travels("train")), task)
    before = State.of(client, client.travels("train"))
    client.learn(data, task)

    assert equal(before, State.of(client, before))

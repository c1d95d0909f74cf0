"""FedCAC on models of eight numbers, so that each mean, mask and circle can be worked out by hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.method import Arrivals, LocalData, Participant, Samples
from pfl_common.methods import Method, fedavg, fedcac
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum

torch.set_num_threads(1)

# Bits are written as they lie: the two numbers of head.bias, then the six of head.weight.
FIRST, SECOND, THIRD = "11110000", "11101000", "00011110"


class Held:
    """An update kept by reference, which counts how often it was read."""

    def __init__(self, state: State) -> None:
        self.id, self.reads, self._state = "held", 0, state

    def load(self) -> State:
        """What was shown."""
        self.reads += 1
        return self._state


def build_spec(method: str, settings: dict[str, Json]) -> RunSpec:
    """A run of three sites; no setting of it but the method's own matters here."""
    model = Model("hand", (3,), ("x", "y"))
    return RunSpec("hand", method, settings, model, rounds=9, seed=3, roster=("a", "b", "c"))


def build_backbone(*, norm: bool) -> Backbone:
    """Eight numbers in a head; on request a batch norm before it, under a name that does not say so."""
    encoder = nn.Sequential(nn.Sequential(nn.BatchNorm1d(3))) if norm else nn.Sequential()
    return Backbone(encoder=encoder, head=nn.Linear(3, 2), features=3)


def build_client(*, norm: bool = False, **settings: Json) -> fedcac.Client:
    """A site's half with its first values."""
    client = Method.of(fedcac).build_client(build_spec("fedcac", settings), build_backbone(norm=norm))
    assert isinstance(client, fedcac.Client)
    generators.initialise(client, 3)
    return client


def build_server(**settings: Json) -> fedcac.Server:
    """The coordinator's half."""
    server = Method.of(fedcac).build_server(build_spec("fedcac", settings))
    assert isinstance(server, fedcac.Server)
    return server


def build_data(site: str = "a", samples: int = 7) -> LocalData:
    """A site's data: numbers that depend on the site, and two classes in turn."""
    x = torch.randn(samples, 3, generator=generators.generator("data", site))
    part = Samples(x, torch.arange(samples) % 2)
    return LocalData(train=part, validation=part, test=part, classes=2, site=site, seed=7)


def ask(number: int = 1, *, since: int = 0, kind: Kind = Kind.TRAIN) -> Task:
    """One request."""
    return Task(kind=kind, round=number, rounds=9, since=since)


def pack_bits(bits: str) -> torch.Tensor:
    """Bits as bytes, by other means than the product's."""
    return torch.from_numpy(np.packbits([int(bit) for bit in bits], bitorder="little"))


def model_of(value: float) -> State:
    """A model all of whose numbers are equal."""
    return State(
        {"head.bias": torch.full((2,), float(value)), "head.weight": torch.full((2, 3), float(value))}
    )


def update_of(value: float, bits: str, samples: int = 1) -> Held:
    """What a site with such a model, mask and number of samples has shown."""
    small = {"mask": pack_bits(bits), "samples": torch.tensor(samples)}
    return Held(model_of(value).within("w") | small)


def close(
    server: fedcac.Server, updates: dict[str, Held], number: int = 1, state: State | None = None
) -> State:
    """One round of these updates."""
    before = server.start(build_client(), 3) if state is None else state
    return server.close(before, Arrivals(Sum(), updates), ask(number)).state


def three_sites() -> dict[str, Held]:
    """Sites whose first two agree in three of their four critical entries."""
    return {"a": update_of(1, FIRST), "b": update_of(3, SECOND), "c": update_of(8, THIRD)}


def u_of(server: fedcac.Server, state: State, site: str, since: int = 1) -> float:
    """The one number that this site's u is made of."""
    return float(server.send(state, site, ask(since + 1, since=since))["u.head.bias"][0])


def numbers(client: nn.Module) -> list[float]:
    """The eight numbers in the order of the masks."""
    state = client.state_dict()
    return [*state["head.bias"].tolist(), *state["head.weight"].flatten().tolist()]


def returning(bits: str, value: float = -1.0, **settings: Json) -> fedcac.Client:
    """A site that has trained before: its numbers are equal, its mask is given."""
    client = build_client(**settings)
    client.load_state_dict({**model_of(value), "mask": pack_bits(bits), "has_mask": torch.tensor(1)})
    return client


def run_rounds(clients: dict[str, Participant], method: Method, server_settings: dict[str, Json]) -> State:
    """Two rounds at full participation, then each site receives once more."""
    server = method.build_server(build_spec(method.name, server_settings))
    state = server.start(next(iter(clients.values())), 3)
    for number in (1, 2, 3):
        task = ask(number, since=number - 1)
        total, shown = Sum(), {}
        for site in sorted(clients):
            down = server.welcome(state) if number == 1 else server.send(state, site, task)
            clients[site].receive(down, task)
            if number < 3:
                clients[site].learn(build_data(site), task)
                up = clients[site].report(build_data(site), task)
                total.add(up.summed)
                shown[site] = Held(up.shown)
        if number < 3:
            state = server.close(state, Arrivals(total, shown), task).state
    return state


def expected_mask(before: np.ndarray, after: np.ndarray, share: float) -> np.ndarray:
    """Section 2.3 step 4 in numpy, without its degenerate case."""
    scores = np.abs((after - before) * after)
    count = int(np.floor(share * scores.size))
    return scores >= (np.sort(scores.ravel())[::-1][count - 1] if count else np.inf)


# The coordinator


@pytest.mark.golden("fedcac", item=4)
def test_a_round_by_hand() -> None:
    """w is the mean of 1, 3 and 8; the first two share a u of 2, the third keeps its own 8."""
    server = build_server(beta=10)
    state = close(server, three_sites())
    down = server.send(state, "a", ask(2, since=1))
    assert {4.0} == set(down["w.head.bias"].tolist()) | set(down["w.head.weight"].flatten().tolist())
    assert [2.0, 2.0, 8.0] == [u_of(server, state, site) for site in "abc"]


@pytest.mark.golden("fedcac", item=4)
@pytest.mark.parametrize(
    ("settings", "number", "expected"),
    [
        ({"collab": "time_varying", "beta": 10}, 10, [2.0, 2.0, 8.0]),
        ({"collab": "time_varying", "beta": 10}, 11, [1.0, 3.0, 8.0]),
        ({"beta": 1}, 1, [2.0, 2.0, 8.0]),
        ({"beta": 1}, 2, [1.0, 3.0, 8.0]),
        ({"collab": "none"}, 1, [1.0, 3.0, 8.0]),
        ({"collab": "top1", "beta": 1}, 9, [2.0, 2.0, 4.5]),
        ({"collab": "top5", "beta": 1}, 9, [4.0, 4.0, 4.0]),
    ],
)
def test_who_is_in_u(settings: dict[str, Json], number: int, expected: list[float]) -> None:
    """Means of 1, 3 and 8 over each site's circle; of two equally near sites the first by name is taken."""
    server = build_server(**settings)
    state = close(server, three_sites(), number)
    assert expected == [u_of(server, state, site, since=number) for site in "abc"]


@pytest.mark.parametrize(("norm", "expected"), [("row", [1.0, 2.0, 5.5]), ("dice", [2.0, 4.0, 5.5])])
def test_overlap_norm(norm: str, expected: list[float]) -> None:
    """Nested masks of 2, 4, 8: by row O is .5 -.5 / .75 .5 / .625 .75, by dice 2/3 .4 / 2/3 2/3 / .4 2/3."""
    updates = {"a": update_of(1, "11000000"), "b": update_of(3, "11110000"), "c": update_of(8, "11111111")}
    server = build_server(overlap_norm=norm, beta=1)
    state = close(server, updates)
    assert expected == [u_of(server, state, site) for site in "abc"]


def tell(server: fedcac.Server, updates: dict[str, Held], number: int) -> dict[str, float]:
    """What is told of a round of these updates."""
    return server.close(server.start(build_client(), 3), Arrivals(Sum(), updates), ask(number)).numbers


@pytest.mark.golden("fedcac", item=4)
@pytest.mark.parametrize(("number", "threshold"), [(1, 0.45), (5, 0.583333), (10, 0.75)])
def test_what_is_told_of_a_round_by_hand(number: int, threshold: float) -> None:
    """Of three sites two share; O is .75 for that pair and .25 for the others; half of all is marked."""
    told = {
        **{"circle/mean": 2 / 3, "circle/least": 0, "circle/most": 1},
        **{"critical/mean": 0.5, "critical/least": 0.5, "critical/most": 0.5},
        **{"overlap/mean": 2.5 / 6, "overlap/most": 0.75, "overlap/threshold": threshold},
    }
    updates = three_sites()
    assert pytest.approx(told, abs=1e-6) == tell(build_server(beta=10), updates, number)
    assert [1, 1, 1] == [updates[site].reads for site in "abc"], "nothing is read twice to be told"


@pytest.mark.parametrize(
    ("settings", "number", "circle"),
    [({"beta": 10}, 11, (0, 0, 0)), ({"collab": "none"}, 1, (0, 0, 0)), ({"collab": "top1"}, 1, (1, 1, 1))],
)
def test_no_threshold_is_told_where_none_is_asked_for(
    settings: dict[str, Json], number: int, circle: tuple[int, int, int]
) -> None:
    """After round beta everybody is alone by rule; other rules know no threshold."""
    told = tell(build_server(**settings), three_sites(), number)
    assert circle == (told["circle/mean"], told["circle/least"], told["circle/most"])
    assert ("overlap/mean" in told, "overlap/threshold" in told) == (True, False)


def test_one_site_has_no_overlap_and_nobody_tells_nothing() -> None:
    """A mask of three bits in eight, and no other to compare it with."""
    told = tell(build_server(), {"a": update_of(1, "11100000")}, 1)
    assert {"circle", "critical"} == {name.partition("/")[0] for name in told}
    assert (0, 0.375) == (told["circle/most"], told["critical/mean"])
    assert {} == tell(build_server(), {}, 1)


def test_statistics_are_not_among_what_can_be_critical() -> None:
    """A batch norm adds three scales and three shifts to the eight numbers; its statistics have no mask."""
    server, client = build_server(), build_client(norm=True)
    client.learn(build_data(), ask())
    shown = {"a": Held(client.report(build_data(), ask()).shown)}
    told = server.close(server.start(client, 3), Arrivals(Sum(), shown), ask()).numbers
    assert sum(float(mask.sum()) for mask in client.critical().values()) / 14 == told["critical/mean"]


@pytest.mark.parametrize(
    ("aggregation", "everybody", "circle"),
    [("uniform", 4.0, 2.0), ("samples", 13 / 3, 2.5), ("mixed", 13 / 3, 2.0)],
)
def test_how_sites_count(aggregation: str, everybody: float, circle: float) -> None:
    """1, 3 and 8 of 1, 3 and 2 samples: alike w = 12 / 3 and u = 4 / 2, by samples w = 26 / 6 and u = 10 / 4."""
    updates = {"a": update_of(1, FIRST, 1), "b": update_of(3, SECOND, 3), "c": update_of(8, THIRD, 2)}
    server = build_server(aggregation=aggregation, beta=10)
    state = close(server, updates)
    assert (pytest.approx(everybody), circle) == (float(state["w.head.bias"][0]), u_of(server, state, "a"))


def test_a_made_up_number_of_samples_has_bounds() -> None:
    """Less than one sample counts as one, and the largest integer as 2^40."""
    updates = {"a": update_of(1, FIRST, -(1 << 62)), "b": update_of(4, FIRST, 2)}
    server = build_server(aggregation="samples")
    assert 3.0 == float(close(server, updates)["w.head.bias"][0])
    updates = {"a": update_of(1, FIRST, (1 << 63) - 1), "b": update_of(4, FIRST, 1 << 40)}
    assert 2.5 == float(close(server, updates)["w.head.bias"][0])


def test_only_what_a_circle_needs_is_read_and_kept() -> None:
    """Closing reads each update once; sending reads the circle; what no circle needs any more is let go."""
    updates, server = three_sites(), build_server(beta=10)
    state = close(server, updates)
    assert [1, 1, 1] == [updates[site].reads for site in "abc"]
    server.send(state, "a", ask(2, since=1))
    assert [2, 2, 1] == [updates[site].reads for site in "abc"]
    later = close(server, {"a": update_of(5, FIRST), "c": update_of(7, THIRD)}, 2, state)
    assert ["a@1", "a@2", "b@1", "c@2"] == sorted(later.kept)
    last = close(server, {"b": update_of(5, SECOND)}, 3, later)
    assert ["a@2", "b@3", "c@2"] == sorted(last.kept)
    assert ["a@1", "a@2", "b@1", "c@2"] == sorted(later.kept), "a State is never changed in place"


def test_circles_are_of_the_round_and_w_is_of_today() -> None:
    """A site last counted in round 1 gets round 1's u, and the w of round 2."""
    server = build_server(beta=10)
    state = close(server, three_sites())
    later = close(server, {"a": update_of(5, FIRST), "c": update_of(7, THIRD)}, 2, state)
    down = server.send(later, "b", ask(3, since=1))
    assert (2.0, 6.0) == (float(down["u.head.bias"][0]), float(down["w.head.bias"][0]))


@pytest.mark.parametrize(("site", "since"), [("b", 0), ("b", 2), ("newcomer", 0), ("newcomer", 1)])
def test_without_an_unmerged_round_only_w_is_sent(site: str, since: int) -> None:
    """New, back with a lost vault, or trained since without being counted: w alone."""
    server = build_server()
    state = close(server, three_sites())
    assert {"w.head.bias", "w.head.weight"} == set(server.send(state, site, ask(4, since=since)))
    assert {"w.head.bias", "w.head.weight"} == set(server.welcome(state))


def test_an_empty_round_changes_nothing() -> None:
    """Nobody counted: the same state."""
    server = build_server()
    state = close(server, three_sites())
    assert state is close(server, {}, 2, state)


@pytest.mark.parametrize("collaboration", ["time_varying", "none", "top1", "top5"])
def test_one_site_is_alone(collaboration: str) -> None:
    """A round of one site: u and w are its model."""
    server = build_server(collab=collaboration)
    state = close(server, {"a": update_of(2, FIRST)})
    assert 2.0 == u_of(server, state, "a") == float(state["w.head.bias"][0])


def test_sites_are_folded_in_the_order_of_their_names() -> None:
    """Not in that of arrival, and not in that of the keys: `a` comes before `a-1`, though `a@` does not."""
    values = {"a": 1e8, "a-1": 1.0, "b": -1e8}
    updates = {site: update_of(values[site], FIRST) for site in ("b", "a-1", "a")}
    server = build_server()
    state = close(server, updates)
    assert "a@1 a-1@1 b@1" == bytes(state["circle.b"].tolist()).decode()
    assert all(key.rpartition("@")[2] == "1" for key in state.kept)
    mirrored = close(server, dict(reversed(updates.items())))
    assert all(torch.equal(state[name], mirrored[name]) for name in state)


# The site


def test_merge_by_hand() -> None:
    """Critical entries from u = 2, the others from w = 4 (Eq. 11), for every kind of task."""
    down = model_of(4).within("w") | model_of(2).within("u")
    for kind in Kind:
        client = returning(FIRST)
        client.receive(down, ask(2, since=1, kind=kind))
        assert [2.0] * 4 + [4.0] * 4 == numbers(client)


def test_without_u_own_values_are_critical() -> None:
    """After an update was lost: own -1 where critical, w elsewhere."""
    client = returning(SECOND)
    client.receive(model_of(4).within("w"), ask(3, since=2))
    assert [-1.0, -1.0, -1.0, 4.0, -1.0, 4.0, 4.0, 4.0] == numbers(client)


@pytest.mark.parametrize("noncritical", ["all", "as_critical"])
def test_a_new_site_takes_w(noncritical: str) -> None:
    """Without a mask the whole of w is loaded, statistics too, whatever would be critical later."""
    client = build_client(norm=True, noncritical=noncritical)
    welcome = build_server().welcome(build_server().start(client, 3)).apply(lambda value: value + 4)
    client.receive(welcome, ask(3))
    assert [4.0] * 3 == client.state_dict()["encoder.0.0.running_mean"].tolist()
    assert all(torch.equal(value, client.state_dict()[name]) for name, value in welcome.under("w").items())


def test_noncritical_as_critical() -> None:
    """All entries come from u, or all from the site itself where there is no u."""
    with_u, without = (returning(FIRST, noncritical="as_critical") for _ in range(2))
    with_u.receive(model_of(4).within("w") | model_of(2).within("u"), ask(2, since=1))
    without.receive(model_of(4).within("w"), ask(3, since=2))
    assert ([2.0] * 8, [-1.0] * 8) == (numbers(with_u), numbers(without))


@pytest.mark.parametrize("noncritical", ["all", "as_critical"])
def test_merging_at_the_server_is_the_same_and_half_as_much(noncritical: str) -> None:
    """The site ends with the same bits; one model is sent instead of two."""
    ends, sizes = [], []
    for place in ("client", "server"):
        settings: dict[str, Json] = {"merge_at": place, "noncritical": noncritical, "beta": 10}
        server, client = build_server(**settings), returning(FIRST, 1.0, **settings)
        down = server.send(close(server, three_sites()), "a", ask(2, since=1))
        client.receive(down, ask(2, since=1))
        ends.append(numbers(client))
        sizes.append(sum(value.numel() for value in down.values()))
    assert [16, 8] == sizes
    assert ends[0] == ends[1] == ([2.0] * 4 + [4.0] * 4 if noncritical == "all" else [2.0] * 8)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("tau", [0.5, 0.25])
def test_learning_by_hand(momentum: float, tau: float) -> None:
    """Two steps of softmax regression in numpy: the same model, the same masks, the same density."""
    client, data = build_client(lr=0.1, batch=10, epochs=2, momentum=momentum, tau=tau), build_data()
    client.double()
    x, y = data.train.x.double().numpy(), np.eye(2)[data.train.y.numpy()]
    data = LocalData(Samples(torch.from_numpy(x), data.train.y), data.validation, data.test, 2, "a", 7)
    first = [client.state_dict()[name].numpy().copy() for name in ("head.weight", "head.bias")]
    weight, bias, memory = first[0].copy(), first[1].copy(), [0.0, 0.0]
    for _ in range(2):
        odds = np.exp(x @ weight.T + bias)
        error = (odds / odds.sum(axis=1, keepdims=True) - y) / len(x)
        memory = [momentum * memory[0] + error.T @ x, momentum * memory[1] + error.sum(axis=0)]
        weight, bias = weight - 0.1 * memory[0], bias - 0.1 * memory[1]
    metrics = client.learn(data, ask())
    np.testing.assert_allclose(client.state_dict()["head.weight"].numpy(), weight, atol=1e-12)
    masks = [expected_mask(first[1], bias, tau), expected_mask(first[0], weight, tau)]
    assert np.concatenate([m.ravel() for m in masks]).tolist() == [
        bit for name in ("head.bias", "head.weight") for bit in client.critical()[name].flatten().tolist()
    ]
    assert np.concatenate([m.ravel() for m in masks]).mean() == metrics["mask_density"]
    assert [m.mean() for m in masks] == [metrics["marked/head.bias"], metrics["marked/head.weight"]]
    assert (1, 0.0) == (int(client.has_mask), metrics["mask_jaccard"])


def test_no_movement_marks_everything(caplog: pytest.LogCaptureFixture) -> None:
    """A tensor that did not move is critical as a whole, and the site's log says so."""
    client = build_client(lr=1e-300)
    with caplog.at_level(logging.WARNING):
        metrics = client.learn(build_data(), ask())
    assert 1.0 == metrics["mask_density"]
    assert [2, 2] == [len(caplog.records), len({record.args for record in caplog.records})], (
        "each tensor once"
    )


def test_selection_reverse_marks_what_sensitivity_leaves() -> None:
    """With half of each tensor and no ties the two are each other's complement."""
    chosen = {}
    for selection in ("sensitivity", "reverse"):
        client = build_client(selection=selection)
        client.learn(build_data(), ask())
        chosen[selection] = client.critical()
    assert all(torch.equal(~mask, chosen["reverse"][name]) for name, mask in chosen["sensitivity"].items())


def test_selection_random_is_drawn_anew_each_round() -> None:
    """Half of each tensor, other entries each round, the same ones when a round is repeated."""
    drawn = {}
    for attempt, number in enumerate((1, 1, 2, 3, 4)):
        client = build_client(selection="random")
        client.learn(build_data(), ask(number))
        assert [1, 3] == [int(client.critical()[name].sum()) for name in ("head.bias", "head.weight")]
        drawn[attempt, number] = client.mask.tolist()
    assert drawn[0, 1] == drawn[1, 1]
    assert 1 < len({tuple(mask) for mask in drawn.values()})


# Batch norms


def statistics_after(bn_stats: str) -> tuple[list[float], list[float], set[str]]:
    """The running mean before and after a merge at a site, and the names the site shows."""
    client, server = build_client(norm=True, bn_stats=bn_stats), build_server(bn_stats=bn_stats)
    state, shown = server.start(client, 3), {}
    for site in ("a", "b"):
        other = build_client(norm=True, bn_stats=bn_stats) if site == "b" else client
        other.learn(build_data(site), ask())
        shown[site] = Held(other.report(build_data(site), ask()).shown)
    before = client.state_dict()["encoder.0.0.running_mean"].tolist()
    state = server.close(state, Arrivals(Sum(), shown), ask()).state
    client.receive(server.send(state, "a", ask(2, since=1)), ask(2, since=1))
    return before, client.state_dict()["encoder.0.0.running_mean"].tolist(), set(shown["a"].load())


def test_statistics_follow_u() -> None:
    """Two sites in one circle: the mean of their running means, by hand from the data's own mean."""
    _, after, names = statistics_after("u")
    means = [build_data(site).train.x.double().numpy().mean(axis=0) for site in ("a", "b")]
    assert pytest.approx((0.1 * (means[0] + means[1]) / 2).tolist(), abs=1e-6) == after
    assert {"w.encoder.0.0.running_mean", "w.encoder.0.0.running_var"} < names


def test_local_statistics_are_neither_sent_nor_changed() -> None:
    """They stay as training left them and no parcel has their names."""
    before, after, names = statistics_after("local")
    assert before == after
    assert {"mask", "samples"} | {
        f"w.{name}" for name, _ in build_client(norm=True).named_parameters()
    } == names


@pytest.mark.parametrize("bn_stats", ["u", "local"])
def test_both_merges_are_identical_with_batch_norms(bn_stats: str) -> None:
    """After two rounds of three sites each tensor has the same bits, whichever half merged."""
    ends = []
    for place in ("client", "server"):
        settings: dict[str, Json] = {"merge_at": place, "bn_stats": bn_stats, "epochs": 2}
        clients = {site: build_client(norm=True, **settings) for site in "abc"}
        run_rounds(dict(clients), Method.of(fedcac), settings)
        ends.append([State.of(clients[site]) for site in "abc"])
    for one, other in zip(*ends, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


# Invariants


def test_without_critical_entries_it_is_fedavg() -> None:
    """tau = 0 and local statistics: the bits of FedAvg with uniform weights and local statistics."""
    ours = {site: build_client(norm=True, tau=0.0, bn_stats="local") for site in "abc"}
    run_rounds(dict(ours), Method.of(fedcac), {"tau": 0.0, "bn_stats": "local"})
    plain: dict[str, Json] = {"bn_policy": "local_stats", "aggregation": "uniform"}
    theirs = {
        site: Method.of(fedavg).build_client(build_spec("fedavg", plain), build_backbone(norm=True))
        for site in "abc"
    }
    for client in theirs.values():
        generators.initialise(client, 3)
    run_rounds(dict(theirs), Method.of(fedavg), plain)
    for site in "abc":
        one, other = State.of(ours[site]), State.of(theirs[site])
        assert all(torch.equal(value, one[name]) for name, value in other.items())


def test_with_all_entries_critical_and_nobody_else_it_is_local() -> None:
    """tau = 1 and no collaboration: what moved in training is the site's own after the merge."""
    settings: dict[str, Json] = {"tau": 1.0, "collab": "none"}
    server, clients = build_server(**settings), {site: build_client(**settings) for site in "ab"}
    for site, client in clients.items():
        client.learn(build_data(site), ask())
    updates = {site: Held(client.report(build_data(site), ask()).shown) for site, client in clients.items()}
    trained = numbers(clients["a"])
    state = close(server, updates)
    clients["a"].receive(server.send(state, "a", ask(2, since=1)), ask(2, since=1))
    assert trained == numbers(clients["a"])
    assert trained != numbers(clients["b"])


def test_a_restart_loses_nothing() -> None:
    """A site restored from what its vault keeps merges and trains on to the same bits."""
    client, again, data = build_client(), build_client(), build_data()
    client.learn(data, ask())
    again.load_state_dict({name: client.state_dict()[name] for name in client.stays("train")})
    for one in (client, again):
        one.receive(model_of(4).within("w") | model_of(2).within("u"), ask(2, since=1))
        one.learn(data, ask(2, since=1))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in client.state_dict().items())


def test_what_crosses() -> None:
    """Nothing is summed; model, packed mask and number of samples are shown; counters never are."""
    client = build_client(norm=True)
    up = client.report(build_data(), ask())
    assert ((), {}) == (tuple(client.travels("train")), dict(up.summed))
    assert 7 == int(up.shown["samples"])
    assert (torch.uint8, (2,)) == (up.shown["mask"].dtype, tuple(up.shown["mask"].shape))
    names: Sequence[str] = [name for name in up.shown if "batches" in name or "has_mask" in name]
    assert [] == names


@pytest.mark.parametrize(
    "wrong", [{"tau": 1.5}, {"tau": -0.1}, {"beta": 0}, {"collab": "top2"}, {"bn_policy": "share_all"}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Json]) -> None:
    """A share is between 0 and 1, beta is positive, and words are of the list."""
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Method.of(fedcac).settle(wrong)


def test_where_nobody_collaborates_overlaps_do_not_matter() -> None:
    """How they are measured would change nothing; presets, which name tau and beta, may stand beside it."""
    method = Method.of(fedcac)
    with pytest.raises(SettingError, match="overlap_norm was given without a collab other than none"):
        method.settle({"collab": "none", "overlap_norm": "dice"})
    for preset in method.presets.values():
        method.settle({**preset, "collab": "none"})


def test_what_the_module_says() -> None:
    """Downloads differ by site, secure sums are refused, and the paper's symbols have their defaults."""
    method = Method.of(fedcac)
    assert (True, "it shows the server each client's whole model and its critical mask.") == (
        method.per_client,
        method.shows,
    )
    config = method.settle({})
    assert isinstance(config, fedcac.Config)
    assert (0.5, 100.0, "uniform") == (config.tau, config.beta, config.aggregation)
    presets = {name: method.settle(preset) for name, preset in method.presets.items()}
    assert {(0.1, 100, 5)} == {(c.lr, c.batch, c.epochs) for c in presets.values()}
    assert {
        "paper": (0.5, 100.0),
        "cifar-10": (0.5, 100.0),
        "cifar-100": (0.4, 170.0),
        "tiny-imagenet": (0.5, 170.0),
        "repro": (0.5, 100.0),
    } == {name: (c.tau, c.beta) for name, c in presets.items()}
    assert {(0.0, "u", "uniform")} == {
        (c.momentum, c.bn_stats, c.aggregation) for name, c in presets.items() if name != "repro"
    }
    repro = presets["repro"]
    assert (0.9, "local", "mixed", "row") == (
        repro.momentum,
        repro.bn_stats,
        repro.aggregation,
        repro.overlap_norm,
    )

"""Methods that put what stays at the site into their updates: nothing of it becomes bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pfl_client.trainer.outgoing import FEW, check_outgoing, find_stays
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import Done
from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.learning.method import LocalData, Participant
from pfl_common.methods import fedper
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted
from tests.client.support.runs import Desk

ONE = torch.tensor(1)
NAME = "head.weight"
"""A tensor that stays."""
Fault = Callable[["Faulty", dict[str, Weighted]], Up]


class Faulty(fedper.Client):
    """FedPer, whose head stays, with a fault in its report."""

    fault: Fault

    def report(self, data: LocalData, task: Task) -> Up:
        return type(self).fault(self, dict(super().report(data, task).summed))


def own(client: Participant) -> Tensor:
    """The personal head."""
    return client.get_parameter(NAME).detach()


def summed(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """It is put into the sum by its name."""
    return Up(terms | {NAME: Weighted(own(client).clone() * 2, ONE)})


def weighed(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """Its name is used for a weight of its own branch."""
    return Up(terms | {f"a.{NAME}": Weighted(torch.zeros_like(own(client)), own(client).abs())})


def shown(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """It is shown."""
    return Up(terms, State({NAME: own(client) + 1}))


def shown_deep(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """It is shown below branches of the method's own."""
    return Up(terms, State({f"models.mine.{NAME}": own(client) + 1}))


def renamed(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """A copy of its values goes under a name nobody knows."""
    return Up(terms, State({"statistics": own(client).clone()}))


def reshaped(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """The same in another shape."""
    return Up(terms, State({"statistics": own(client).clone().reshape(-1)}))


def aliased(client: Faulty, terms: dict[str, Weighted]) -> Up:
    """A part of its memory, of a size that no tensor has."""
    return Up(terms, State({"statistics": own(client).reshape(-1)[: FEW + 1]}))


FAULTS = (summed, weighed, shown, shown_deep, renamed, reshaped, aliased)


def open_faulty(monkeypatch: pytest.MonkeyPatch, folder: Path, fault: Fault) -> tuple[Desk, Workbench]:
    """A site whose release of FedPer has a fault; the coordinator's has it too, so the manifest names what it sends."""
    monkeypatch.setattr(Faulty, "fault", staticmethod(fault), raising=False)
    monkeypatch.setattr(fedper, "Client", Faulty)
    desk, bench = Desk(folder, "fedper"), Workbench()
    bench.open(desk.folder, desk.spec.to_json(), desk.init)
    return desk, bench


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_faulty_method_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """The update is refused before a byte of it is made, in words that name the tensor and the method's fault."""
    desk, bench = open_faulty(monkeypatch, tmp_path, fault)
    with pytest.raises(PersonalTensor, match=r"stays at this site") as error:
        bench.work(desk.job(), lambda samples: None)
    assert ("policy", "this site's policy: personal tensors stay") == (error.value.reason, error.value.told)


def test_a_sound_method_sends_its_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same class without a fault."""
    desk, bench = open_faulty(monkeypatch, tmp_path, lambda client, terms: Up(terms))
    done: Done = bench.work(desk.job(), lambda samples: None)
    assert done.up is not None
    assert () == done.told


class Model(Participant):
    """Two tensors of one size: `shared` travels, `personal` stays."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.shared = torch.nn.Parameter(torch.arange(20.0))
        self.personal = torch.nn.Parameter(torch.arange(20.0) * 3)

    def travels(self, phase: str) -> tuple[str, ...]:
        return ("shared",)


TASK = Task("train", 2, 3)  # type: ignore[arg-type]  # only its phase is read


def look(model: Model, sent: Tensor, *, down: Tensor | None = None, kept: Path | None = None) -> None:
    """Look at an update that sends this under the name that may travel."""
    came = State({} if down is None else {"shared": down})
    check_outgoing(State({"sum.shared": sent}), model, TASK, down=came, kept=kept)


def test_values_under_an_allowed_name() -> None:
    """A copy, and the very memory, of what stays."""
    model = Model()
    assert {"personal"} == find_stays(model, "train")
    look(model, model.shared.detach())
    for sent, why in ((model.personal.detach(), "memory"), (model.personal.detach().clone(), "values")):
        with pytest.raises(PersonalTensor, match=f"'sum.shared'.*{why}.*personal, which stays"):
            look(model, sent)


def test_a_personal_tensor_written_into_the_shared_one() -> None:
    """What travels is then the shared tensor itself, by name and memory: its values give it away."""
    model = Model()
    with torch.no_grad():
        model.shared.copy_(model.personal)
    with pytest.raises(PersonalTensor, match="values"):
        look(model, model.shared.detach())


def test_what_stayed_until_this_task(tmp_path: Path) -> None:
    """The vault has it still, although training has changed it since."""
    model, kept = Model(), tmp_path / "kept.safetensors"
    save_file({"personal": torch.arange(20.0) + 7}, kept)
    look(model, model.shared.detach(), kept=kept)
    with pytest.raises(PersonalTensor, match="values of personal"):
        look(model, load_file(kept)["personal"], kept=kept)


def test_what_is_equal_for_another_reason_is_no_alarm(tmp_path: Path) -> None:
    """Zeros, what came down unchanged, a few numbers, and a second model that was set to the shared one."""
    model = Model()
    with torch.no_grad():
        model.personal.zero_()
    look(model, torch.zeros(20))
    with torch.no_grad():
        model.personal.copy_(model.shared)
    look(model, model.shared.detach(), down=torch.arange(20.0))
    with pytest.raises(PersonalTensor):
        look(model, model.shared.detach())
    model.copies_shared = ("personal",)
    look(model, model.shared.detach())
    check_outgoing(
        State({"sum.few": model.personal.detach()[:FEW].clone()}), model, TASK, down=State(), kept=None
    )


def test_a_second_model_is_guarded_by_its_name_still() -> None:
    """Only the comparison of values is left out for it, not that of memory."""
    model = Model()
    model.copies_shared = ("personal",)
    with pytest.raises(PersonalTensor, match="name"):
        check_outgoing(State({"show.personal": torch.zeros(20)}), model, TASK, down=State(), kept=None)
    with pytest.raises(PersonalTensor, match="memory"):
        look(model, model.personal.detach())

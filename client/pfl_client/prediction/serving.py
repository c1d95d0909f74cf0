"""Reads a serving model: its tensors, and the run's specification that stands in the same file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pfl_client.trainer_process.api import Measured
from pfl_common import methods
from pfl_common.errors import StateError
from pfl_common.learning.method import Participant
from pfl_common.models.memory_format import arrange
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.run import ClientId, RunSpec
from pfl_common.spec.run_bounds import check_spec
from pfl_common.tensors.state import load_into
from pfl_common.tensors.update_check import find_infinite

_ADVICE = "name the serving.safetensors that the site wrote at the end of its run, or a copy of it"
_MEASURED: TypeAdapter[Measured | None] = TypeAdapter(Measured | None)
_WINDOW: TypeAdapter[tuple[float, float] | None] = TypeAdapter(tuple[float, float] | None)


@dataclass(frozen=True)
class Served:
    """A site's finished model."""

    file: Path
    site: ClientId
    spec: RunSpec
    participant: Participant
    validation: float | None = None
    """The share of its training samples that the site validated on; None: what the run says."""
    best: Measured | None = None
    """Of the best round's model: which round it is of, and how good it was on the site's validation part."""
    dicom_window: tuple[float, float] | None = None
    """What the site's data.json said when it trained; it holds for new files too."""

    @property
    def place(self) -> str:
        """Which of a run's models it is, in words that follow the run; nothing of the last one."""
        if self.best is None:
            return ""
        return (
            f", the best on its validation part: round {self.best.round}, accuracy {self.best.accuracy:.4f}"
        )

    @property
    def sha256(self) -> str:
        """The hash of its file."""
        with self.file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()


class _About(NamedTuple):
    """What a file says of itself."""

    site: ClientId
    spec: RunSpec
    validation: float | None
    best: Measured | None
    dicom_window: tuple[float, float] | None


def read_served(file: Path) -> Served:
    """A serving model in its method's own network, checked name by name."""
    try:
        with safe_open(file, "pt") as content:
            about = content.metadata() or {}
            said = _read_about(about.get("pfl", ""), file)
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError) as error:
        raise StateError(
            f"{file} cannot be read: {type(error).__name__}", expected="a serving model", advice=_ADVICE
        ) from None
    # Without numbers first: what the file says of itself could be a network larger than this machine.
    with without_numbers():
        _check_shapes(tensors, methods.build_participant(said.spec), file)
    participant = methods.build_participant(said.spec)
    _check_numbers(tensors, participant, file)
    load_into(participant, tensors)
    arrange(participant, said.spec.memory_format)
    participant.eval()
    return Served(file, said.site, said.spec, participant, said.validation, said.best, said.dicom_window)


def _read_about(text: str, file: Path) -> _About:
    try:
        about = json.loads(text)
        spec = RunSpec.from_json(json.dumps(about["spec"]))
        check_spec(spec)
        share = about.get("validation")
        best = _MEASURED.validate_python(about.get("best"))
        window = _WINDOW.validate_python((about.get("data") or {}).get("dicom_window"))
        return _About(str(about["site"]), spec, None if share is None else float(share), best, window)
    except (*(ValueError, TypeError, KeyError), *(AttributeError, OverflowError, RecursionError)):
        seen = "does not say of which run it is" if not text else "describes a run that cannot be read"
        raise StateError(
            f"{file} {seen}", expected="a serving model written by pfl-client of this release", advice=_ADVICE
        ) from None


def _check_shapes(tensors: dict[str, Tensor], participant: Participant, file: Path) -> None:
    own = participant.state_dict()
    odd = sorted(own.keys() ^ tensors.keys()) or sorted(n for n in own if own[n].shape != tensors[n].shape)
    if odd:
        raise StateError(
            f"{file} does not fit its own description: {odd[0]!r}"
            + (f" and {len(odd) - 1} more tensors" if len(odd) > 1 else ""),
            expected="exactly the tensors of its method and network",
            advice="use the release it was trained with, or bring the file back from a copy",
        )


def _check_numbers(tensors: dict[str, Tensor], participant: Participant, file: Path) -> None:
    if broken := find_infinite(
        {n: t for n, t in tensors.items() if n in dict(participant.named_parameters())}
    ):
        raise StateError(
            f"{file} holds NaN or infinity in {broken!r}",
            expected="finite numbers",
            advice="the file is damaged, or its training diverged: take another run's model",
        )

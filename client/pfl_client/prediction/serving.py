"""Reads a serving model: its tensors, and the run's specification that stands in the same file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pfl_common import methods
from pfl_common.errors import StateError
from pfl_common.learning.method import Participant
from pfl_common.spec.run import ClientId, RunSpec
from pfl_common.tensors.check import find_infinite
from pfl_common.tensors.state import load_into

_ADVICE = "name the serving.safetensors that the site wrote at the end of its run, or a copy of it"
_WINDOW: TypeAdapter[tuple[float, float] | None] = TypeAdapter(tuple[float, float] | None)


@dataclass(frozen=True)
class Served:
    """A site's finished model."""

    file: Path
    site: ClientId
    spec: RunSpec
    participant: Participant
    dicom_window: tuple[float, float] | None = None
    """What the site's data.json said when it trained; it holds for new files too."""

    @property
    def sha256(self) -> str:
        """The hash of its file."""
        with self.file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()


def read_served(file: Path) -> Served:
    """A serving model in its method's own network, checked name by name."""
    try:
        with safe_open(file, "pt") as content:
            about = content.metadata() or {}
            site, spec, window = _read_about(about.get("pfl", ""), file)
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError) as error:
        raise StateError(
            f"{file} cannot be read: {type(error).__name__}", expected="a serving model", advice=_ADVICE
        ) from None
    participant = methods.build_participant(spec)
    _check_tensors(tensors, participant, file)
    load_into(participant, tensors)
    participant.eval()
    return Served(file, site, spec, participant, window)


def _read_about(text: str, file: Path) -> tuple[ClientId, RunSpec, tuple[float, float] | None]:
    try:
        about = json.loads(text)
        window = _WINDOW.validate_python(about.get("data", {}).get("dicom_window"))
        return str(about["site"]), RunSpec.from_json(json.dumps(about["spec"])), window
    except (ValueError, TypeError, KeyError, ValidationError):
        seen = "does not say of which run it is" if not text else "describes a run that cannot be read"
        raise StateError(
            f"{file} {seen}", expected="a serving model written by pfl-client of this release", advice=_ADVICE
        ) from None


def _check_tensors(tensors: dict[str, Tensor], participant: Participant, file: Path) -> None:
    own = participant.state_dict()
    odd = sorted(own.keys() ^ tensors.keys()) or sorted(n for n in own if own[n].shape != tensors[n].shape)
    if odd:
        raise StateError(
            f"{file} does not fit its own description: {odd[0]!r}"
            + (f" and {len(odd) - 1} more tensors" if len(odd) > 1 else ""),
            expected="exactly the tensors of its method and network",
            advice="use the release it was trained with, or bring the file back from a copy",
        )
    if broken := find_infinite(
        {n: t for n, t in tensors.items() if n in dict(participant.named_parameters())}
    ):
        raise StateError(
            f"{file} holds NaN or infinity in {broken!r}",
            expected="finite numbers",
            advice="the file is damaged, or its training diverged: take another run's model",
        )

"""Errors for tasks a site cannot do, each with the reason code sent to the coordinator. Torch-free.

The trainer raises them, the daemon turns them into `Link.decline(key, error.reason, str(error))`.

Declined          a UserError with a `reason` out of `messages.DECLINES`
├── OutOfMemory   the graphics card or the machine has too little memory for this model and batch
├── Diverged      training gave NaN or infinity
├── TooFew        the method needs more training samples than the site has
├── WrongShape    the download does not fit this run's manifest or model
├── DiskFull      there is no room for what the task writes
├── PersonalTensor  the method put into its update what stays at the site
└── Tampered      what came is not what the coordinator sealed for this site
"""

from __future__ import annotations

from pathlib import Path

from pfl_common.errors import UserError
from pfl_common.files.full import is_full


class Declined(UserError):
    """The site cannot do this task."""

    reason = "trainer_failed"


class OutOfMemory(Declined):
    """The graphics card or the machine has too little memory for this model and batch."""

    reason = "out_of_memory"


class Diverged(Declined):
    """Training produced NaN or infinite numbers."""

    reason = "diverged"


class TooFew(Declined):
    """The method needs more training samples than the site has."""

    reason = "too_few_samples"


class WrongShape(Declined):
    """The download does not match this run's manifest or model."""

    reason = "wrong_shape"


class DiskFull(Declined):
    """The disk has no room for the task's files."""

    reason = "disk_full"


class PersonalTensor(Declined):
    """The update holds a tensor that stays at this site."""

    reason = "policy"
    told = "this site's policy: personal tensors stay"
    """For the coordinator."""


class Tampered(Declined):
    """The download is not what the coordinator sealed for this site and this task."""

    reason = "tampered"


class disk_full:  # as a generator it would cost several times as much, and a task has a dozen
    """While open, a full disk or quota below this path is said in words."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and is_full(error):
            raise DiskFull(
                "the site's disk ran full in the middle of its work",
                expected="room for two generations of the model and one upload",
                advice=f"make room on the disk of {self._path}; the site goes on by itself",
            ) from error

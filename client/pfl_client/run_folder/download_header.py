"""Checks the header of a download before its first byte: it must be the one that task and specification give.

Where downloads cross as changes the header also says which of two ways this one crosses, and the hash of what the site
holds once it has it. A change is taken only of what this site was sent in the round before, in the first round of the
first model.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pfl_client.trainer_process.task_errors import Tampered
from pfl_common.spec.manifest import Manifest, manifest_hash
from pfl_common.spec.messages import Assignment, header_down
from pfl_common.spec.run import Header, Kind, RunSpec, Task, parcel_key

_HASH = re.compile(r"[0-9a-f]{64}")
_NOT_TRUSTED = "tell the operator: this coordinator is not to be trusted, or of another release"


def check_header(spec: RunSpec, assignment: Assignment) -> None:
    """Refuse a download under another header than its task's, and a change of what this site was never sent."""
    task, said = assignment.task, assignment.header
    if not _is_expected(spec, task, said):
        raise Tampered(
            f"the download of {assignment.key} comes under another header than its task's",
            expected="the header that run, round, attempt and phase give",
            advice="tell the operator: something between coordinator and site mixes parcels up",
        )
    if crosses_as_delta(spec, task, said) and task.since != task.round - 1:
        raise Tampered(
            f"the download of {assignment.key} is the change of what was sent in round {task.round - 1}, and the "
            f"coordinator goes on from this site's state of round {task.since}",
            expected="a change only for a site that was in the round before",
            advice=_NOT_TRUSTED,
        )


def _is_expected(spec: RunSpec, task: Task, said: Header) -> bool:
    if parcel_key(task.kind, task.phase, "down") not in spec.manifests:
        return False
    changes = bool(spec.delta(task.phase)) and task.kind is Kind.TRAIN
    if changes and not _HASH.fullmatch(said.sent):
        return False
    sent, as_delta = said.sent if changes else "", crosses_as_delta(spec, task, said)
    wanted = header_down(spec, task, state=said.state, sent=sent, as_delta=as_delta)
    return said == (replace(wanted, groups=said.groups) if said.groups else wanted)


def crosses_as_delta(spec: RunSpec, task: Task, header: Header) -> bool:
    """Whether a download is the change since the round before."""
    delta = spec.delta(task.phase)
    return task.kind is Kind.TRAIN and bool(delta) and header.manifest == manifest_hash(delta)


def find_manifest(spec: RunSpec, task: Task, header: Header) -> Manifest:
    """The tensors of a download, as they cross."""
    as_delta = crosses_as_delta(spec, task, header)
    return spec.delta(task.phase) if as_delta else spec.manifest(task.kind, task.phase, "down")

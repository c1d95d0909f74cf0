"""What a round begins from, and what its sites are sent of it where downloads cross as changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from pfl_common.spec.manifest import Manifest, changing_names
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors import sent_state
from pfl_common.tensors.state import State


@dataclass(frozen=True)
class Base:
    """The shared state that a round begins from, and after which round it stood."""

    after: int
    state: State
    sent: State = field(default_factory=State)
    """What sites that were in that round hold of the encoded tensors; nothing where downloads cross as values."""


@dataclass(frozen=True)
class Sent:
    """What sites hold of the encoded tensors once they have a round's download."""

    manifest: Manifest = ()
    """Of the changes; none where downloads cross as values."""
    values: State = field(default_factory=State)
    digest: str = ""
    before: State = field(default_factory=State)
    """What those held that were in the round before; nothing where all are sent the whole."""

    def is_change_for(self, task: Task) -> bool:
        """Whether the site of this task can be sent the change."""
        return bool(self.before) and task.since == task.round - 1


def find_sent(spec: RunSpec, task: Task, base: Base) -> Sent:
    """What sites are sent in a round that begins from this base: it follows what they were sent in the round before, or
    begins anew as the state is, after a fall to an older one and in a phase that shares other tensors.
    """
    manifest = spec.delta(task.phase) if task.kind is Kind.TRAIN else ()
    names = changing_names(manifest)
    if not names:
        return Sent()
    before = base.sent if base.after == task.round - 1 and base.sent.keys() == set(names) else State()
    values = sent_state.follow(before, base.state, manifest) if before else base.state.only(names)
    return Sent(manifest, values, sent_state.digest_of(values, manifest, spec.digests), before)

"""Pins the form in which each tensor of a run's parcels crosses: see `pfl_common/spec/encoding.py`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeAlias

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.method import Participant
from pfl_common.learning.partition import running_statistics
from pfl_common.learning.quantities import list_quantities
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.encoding import encode_manifests, parse_encoding
from pfl_common.spec.manifest import DELTA, Manifest, decode_manifest, full_size
from pfl_common.spec.rules import Downlink
from pfl_common.spec.run import RunSpec
from pfl_common.tensors.update import SUM

Manifests: TypeAlias = Mapping[str, Manifest]


def pin_encoding(spec: RunSpec) -> RunSpec:
    """The specification with its manifests as they cross; refused where nothing that travels can be encoded."""
    encoding, as_it_is = parse_encoding(spec.encoding), replace(spec, downlink="bf16")
    if encoding.is_plain:
        return as_it_is
    values = _list_shared(spec)
    manifests = encode_manifests(spec.manifests, encoding, values)
    if all(decode_manifest(manifest) is manifest for manifest in manifests.values()):
        # Of local nothing crosses: it stands beside the others of a comparison as it is.
        if not any(values.values()):
            return as_it_is
        raise SettingError(
            f"--encoding {spec.encoding} with {spec.method}: all that it shares are small tensors or such that must be "
            "exact",
            expected="a network or a method with larger tensors to share",
            advice="leave --encoding out",
        )
    changes = {} if encoding.delta is None else encode_manifests(spec.manifests, encoding, values, delta=True)
    downlink, why = _choose_downlink(spec, manifests, changes)
    pinned = replace(spec, manifests=changes if downlink == "delta" else manifests, downlink=downlink)
    return replace(pinned, chosen={**spec.chosen, "encoding": _say(spec, pinned.manifests, why)})


def _choose_downlink(spec: RunSpec, values: Manifests, changes: Manifests) -> tuple[Downlink, str]:
    """How downloads to train cross; and why as values, where changes were possible or nobody has chosen."""
    if not changes or spec.downlink == "bf16":
        return "bf16", ""
    alike = methods.load(spec.method).sends_alike
    why = "" if alike else f"{spec.method} sends different sites different tensors"
    if spec.downlink == "auto":
        why = why or _why_values(spec, values, changes)
    return ("bf16", why) if why else ("delta", "")


def _why_values(spec: RunSpec, values: Manifests, changes: Manifests) -> str:
    """Why changes would be no fewer bytes; empty if they are."""
    share = _share_asked(spec)
    begun = spec.begins_from is not None
    if _is_less(spec.rounds * share, share, values, changes, begun=begun):
        return ""
    when = f"a site is asked in {share:.0%} of {spec.rounds} rounds"
    return f"{when}, and changes are for those that were in the round before"


def _share_asked(spec: RunSpec) -> float:
    """In which share of the rounds a site is asked, of those that are asked at all."""
    asked = spec.participation
    return 1.0 if asked.fixed else (asked.low + asked.high) / 2


def _is_less(times: float, share: float, values: Manifests, changes: Manifests, *, begun: bool) -> bool:
    """Whether a site that is asked so many times is sent fewer bytes as changes: it is sent the whole whenever it was
    not in the round before, and in a run that begins from another one's state the first time.
    """
    key = next(key for key in changes if key not in values)
    down = key.removesuffix(DELTA) + "down"
    delta, whole, usual = (full_size(found) for found in (changes[key], changes[down], values[down]))
    later = share * delta + (1 - share) * whole
    first = whole if begun else later
    return first + max(0.0, times - 1) * later < max(1.0, times) * usual


def _say(spec: RunSpec, manifests: Manifests, why: str) -> str:
    """What a round carries, beside float32."""
    plain = spec.manifests
    up = next(key for key in manifests if key.startswith("train/") and key.endswith("/up"))
    down, delta = (up.removesuffix("up") + way for way in ("down", DELTA))
    sent = full_size(manifests[up]), full_size(manifests.get(delta, manifests[down]))
    words = [
        f"{what} of {size / 1e6:.3g} MB instead of {full_size(plain[key]) / 1e6:.3g}"
        for what, key, size in zip(("an update", "a download"), (up, down), sent, strict=True)
    ]
    if delta in manifests:
        words.append("which is the change for a site that was in the round before, and whole for any other")
    said = f"{spec.encoding}: {', '.join(words)}; the first model and the last download cross as they are"
    return f"{said}; downloads cross as values: {why}" if why else said


def _list_shared(spec: RunSpec) -> dict[str, AbstractSet[str]]:
    """By phase, the names of summed tensors that hold a model's numbers and no statistics."""
    with without_numbers():
        participant = methods.build_participant(spec)
    method = methods.load(spec.method)
    phases = [phase for phase, _ in method.phases(method.settle(spec.settings), spec.rounds)]
    return {phase: _list_values(participant, spec, phase) for phase in phases}


def _list_values(participant: Participant, spec: RunSpec, phase: str) -> AbstractSet[str]:
    found = list_quantities(participant, spec, phase).items()
    names = {name.removeprefix(f"{SUM}.") for name, what in found if what == "value"}
    return names - running_statistics(participant)

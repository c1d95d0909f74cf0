"""Pins the form in which each tensor of a run's parcels crosses: see `pfl_common/spec/encoding.py`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.method import Participant
from pfl_common.learning.partition import running_statistics
from pfl_common.learning.quantities import list_quantities
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.encoding import encode_manifests, parse_encoding
from pfl_common.spec.manifest import Manifest, decode_manifest, full_size
from pfl_common.spec.run import RunSpec
from pfl_common.tensors.update import SUM


def pin_encoding(spec: RunSpec) -> RunSpec:
    """The specification with its manifests as they cross; refused where nothing that travels can be encoded."""
    encoding = parse_encoding(spec.encoding)
    if encoding.is_plain:
        return spec
    with without_numbers():
        participant = methods.build_participant(spec)
    method = methods.load(spec.method)
    phases = [phase for phase, _ in method.phases(method.settle(spec.settings), spec.rounds)]
    values = {phase: _list_values(participant, spec, phase) for phase in phases}
    manifests = encode_manifests(spec.manifests, encoding, values)
    encoded = any(decode_manifest(manifest) is not manifest for manifest in manifests.values())
    # Of local nothing crosses: it stands beside the others of a comparison as it is.
    if any(values.values()) and not encoded:
        raise SettingError(
            f"--encoding {spec.encoding} with {spec.method}: all that it shares are small tensors or such that must be "
            "exact",
            expected="a network or a method with larger tensors to share",
            advice="leave --encoding out",
        )
    chosen = {**spec.chosen, "encoding": _say(spec, manifests)} if encoded else spec.chosen
    return replace(spec, manifests=manifests, chosen=chosen)


def _say(spec: RunSpec, manifests: Mapping[str, Manifest]) -> str:
    """What a round carries, beside float32."""
    words = []
    for way, what in (("up", "update"), ("down", "download")):
        key = next(key for key in manifests if key.startswith("train/") and key.endswith(f"/{way}"))
        size, plain = full_size(manifests[key]), full_size(spec.manifests[key])
        words.append(f"{what} of {size / 1e6:.3g} MB instead of {plain / 1e6:.3g}")
    return f"{spec.encoding}: an {words[0]}, a {words[1]}; the first model and the last download cross as they are"


def _list_values(participant: Participant, spec: RunSpec, phase: str) -> AbstractSet[str]:
    """Names of summed tensors that hold a model's numbers and no statistics."""
    found = list_quantities(participant, spec, phase).items()
    names = {name.removeprefix(f"{SUM}.") for name, what in found if what == "value"}
    return names - running_statistics(participant)

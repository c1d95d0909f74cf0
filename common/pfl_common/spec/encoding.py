"""The encoding of what crosses in a run: chosen once, pinned in the specification, the same over the network, in the
simulator and in a replay.

**What is encoded.** The numbers of the model that a method shares: `sum.NAME` of an update where NAME is in every
download of the same phase, and NAME in the downloads to train and to measure. Whatever has to be exact stays as it is:
weights, counts, masks, whole numbers, statistics of batch norms, tensors of fewer than `FEWEST` numbers, what a method
shows, the first model, and the last download, from which the site makes the model it predicts with.

**Down to train**, runs under `int8` and `topk` send values (bf16) or, with the rule `downlink = "delta"`, the change
since the round before. In round t sites are sent s_t = s_(t-1) + Q(x_t - s_(t-1)) of the shared state x_t, with Q as
int8, rounded to the nearest; s_0 is in every site's first model. What did not cross is a part of the next difference,
so nothing of it has to be kept. A site that was in the round before holds s_(t-1) in its vault and is sent Q alone,
under the manifest `train/PHASE/delta`; any other is sent s_t whole, as float32. Both come to the same bits, whose hash
the header says (`sent`). Where there is nothing to follow, because the run fell back to an older state, began from
another run's or comes to another phase, s_t is x_t and everybody is sent it whole: see `tensors.sent_state`.

**Where it is said.** In the run's manifests, as the form of each tensor (`encoded_form`). Every size follows from them:
the space a site checks for, the quota of an upload, the spool, the reports. Nothing of it is told by a peer.

**What is encoded of an update** is its change: what the site has after training less what it made of the download.
The coordinator adds the change to the state that the round began from, which it has whole. So its state keeps all its
digits however the download was rounded, and nobody has to remember what a site could decode. A method must compare
updates with the state as it is (`Averaging.compared`); one that does not, or that needs sums that are exact, says so
(`no_encoding`) and is refused at start.

**Who encodes, who decodes.** The trainer encodes, after the look for personal values and for NaN, which see the numbers
as they are. The coordinator decodes wherever an update is read, block by block (`tensors.encoded`): its checks of NaN,
norm and change, its sums and its robust rules see the decoded numbers. A scale that is no number, a place outside its
block or twice in it are refused there.

**What does not cross** of a change under int8 and topk is added to the site's next change. It lies in the vault, in the
same generation as the site's own state: an attempt that is abandoned takes it along, and a site that is drawn to drop
out encodes as if it sent, so that a drawn drop-out and a lost update stay the same event.

**Chance** (`int8:stochastic`) comes from (seed, site, round, "encode", the tensor's name).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pfl_common.spec.encoded_form import LARGEST_SHARE, PLAIN, Form, read_form
from pfl_common.spec.manifest import DELTA, Entry, Manifest, decode_manifest, delta_key

if TYPE_CHECKING:
    from pfl_common.spec.run import RunSpec

FEWEST = 64
"""Tensors of fewer numbers cross as they are: there is nothing to gain."""
USUAL_SHARE = 0.05
"""Of `topk`, where none is named."""
WORDS = ("float32", "bf16", "int8", "int8:stochastic", "topk", "topk:0.05")
_SUM = "sum."
_ENCODED_DOWN = ("train", "evaluate")


@dataclass(frozen=True)
class Encoding:
    """An encoding as it is asked for."""

    kind: Literal["float32", "bf16", "int8", "topk"] = "float32"
    is_stochastic: bool = False
    """Of `int8`: numbers go up or down by chance, so that they are right in the mean; else to the nearest."""
    share: float = 0.0
    """Of `topk`: how many of the changes cross in a round."""

    @property
    def is_plain(self) -> bool:
        """Whether everything crosses as it is."""
        return self.kind == "float32"

    @property
    def up(self) -> Form | None:
        """The form of an update's changes."""
        return None if self.kind == "float32" else Form(self.kind, share=self.share)

    @property
    def down(self) -> Form | None:
        """The form of a download's values."""
        return None if self.kind == "float32" else Form("bf16", is_change=False)

    @property
    def delta(self) -> Form | None:
        """The form of a download's changes; None where that would save nothing. Under topk too it is int8: what a few
        of the changes leave out would be missing at all sites alike.
        """
        return Form("int8") if self.kind in ("int8", "topk") else None

    def form_of(self, key: str, *, delta: bool) -> Form | None:
        """The form of what is encoded in the parcel of this name; `delta` says whether downloads cross as changes."""
        kind, _, rest = key.partition("/")
        way = rest.rpartition("/")[2]
        if way == "up":
            return self.up
        if way == DELTA:
            return self.delta if delta else None
        whole = delta and kind == "train"
        return self.down if kind in _ENCODED_DOWN and not whole else None


def parse_encoding(text: str) -> Encoding:
    """Read an encoding; ValueError if it is none."""
    kind, _, rest = text.partition(":")
    if kind == "int8" and rest in ("", "stochastic") and text != "int8:":
        return Encoding("int8", is_stochastic=bool(rest))
    if kind == "topk" and text != "topk:":
        share = _read_share(rest) if rest else USUAL_SHARE
        if share:
            return Encoding("topk", share=share)
    if text == "float32":
        return Encoding()
    if text == "bf16":
        return Encoding("bf16")
    raise ValueError(f"{', '.join(WORDS)}; a share of topk is above 0, up to {LARGEST_SHARE:g}")


def _read_share(text: str) -> float:
    """A share as a manifest can say it; 0 for any other words."""
    form = read_form(f"topk-change/{text}")
    return form.share if form else 0.0


def encode_manifests(
    manifests: Mapping[str, Manifest],
    encoding: Encoding,
    values: Mapping[str, Collection[str]],
    *,
    delta: bool = False,
) -> dict[str, Manifest]:
    """A run's manifests with the form of each tensor; `values` are, by phase, the names that hold nothing but numbers
    of a model. With `delta` downloads to train cross as changes.
    """
    found = dict(manifests)
    for phase in values if delta else ():
        if _shared(manifests, phase) & set(values[phase]):
            found[delta_key(phase)] = manifests[f"train/{phase}/down"]
    for key, manifest in found.items():
        phase, _, way = key.partition("/")[2].partition("/")
        names = _shared(manifests, phase) & set(values.get(phase, ()))
        if way == "up":
            names = {_SUM + name for name in names}
        if (form := encoding.form_of(key, delta=delta)) is not None:
            found[key] = tuple(replace(e, dtype=form.text) if e.name in names else e for e in manifest)
    return found


def _shared(manifests: Mapping[str, Manifest], phase: str) -> set[str]:
    """Names of large float32 tensors that every site is sent in a phase and sends back in the same shape."""
    down = {e.name: e for e in manifests.get(f"train/{phase}/down", ()) if not e.group}
    up = {e.name.removeprefix(_SUM): e for e in manifests.get(f"train/{phase}/up", ()) if _is_sum(e)}
    return {name for name in down.keys() & up.keys() if _fit(down[name], up[name])}


def _is_sum(entry: Entry) -> bool:
    return entry.name.startswith(_SUM) and not entry.group


def _fit(down: Entry, up: Entry) -> bool:
    large = down.nbytes >= FEWEST * 4
    return down.dtype == up.dtype == PLAIN and down.shape == up.shape and large


def find_unsound(spec: RunSpec) -> str:
    """The first tensor that does not cross as the run's encoding says, in words; empty if all do."""
    try:
        encoding = parse_encoding(spec.encoding)
    except ValueError:
        return f"the encoding {spec.encoding!r:.60}"
    delta = spec.downlink == "delta"
    if spec.downlink == "auto" or (delta and encoding.delta is None):
        return f"the downlink {spec.downlink} under encoding {spec.encoding}"
    for key, manifest in spec.manifests.items():
        phase, _, way = key.partition("/")[2].partition("/")
        wanted = encoding.form_of(key, delta=delta)
        sent = {entry.name for entry in spec.manifests.get(f"train/{phase}/down", ()) if not entry.group}
        for entry in manifest:
            form = read_form(entry.dtype)
            known = entry.name.removeprefix(_SUM) in sent and (way != "up" or _is_sum(entry))
            if form is not None and not (form == wanted and known):
                return f"{entry.name!r:.80} as {entry.dtype} in {key!r:.80}, under encoding {spec.encoding}"
        if way == DELTA and not _is_delta_of(spec.manifests.get(f"train/{phase}/down", ()), manifest):
            return f"{key!r:.80}, which is not the download of its phase with some of it as changes"
    return ""


def _is_delta_of(down: Manifest, delta: Manifest) -> bool:
    """Whether a manifest has the tensors of a download, at least one of them as a change."""
    return decode_manifest(delta) == down != delta

"""Begins a run's first model from weights: reads them, says what was taken of them, pins them in the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from torch import Tensor

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.weights_matching import Fit, fit_weights
from pfl_common.models.torchvision_networks import PREFIX
from pfl_common.models.weights_file import WeightsFile, read_weights
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.run import Model, RunSpec, Weights
from pfl_server.decisions.weights_preprocessing import Prepared
from pfl_server.run.frozen_checks import explain_frozen
from pfl_server.run.weights_fetching import Source, find_source, have_file
from pfl_server.settings import ServerSettings
from pfl_server.store.kept_weights import digest_of

MOST_NAMED = 5
USUAL_SIZE, COLOURS, CLASSES = (224, 224), 3, ("one", "other")
"""Of a network that is looked at before the sites have come; which of its tensors there are does not depend on them."""

log = structlog.get_logger("pfl.weights")


@dataclass(frozen=True)
class Pretrained:
    """Weights as they were read, and what is known of how they came about."""

    source: Source
    content: WeightsFile
    trained: RunSpec | None
    """The run that they come from, of a serving model of ours."""

    @property
    def backbone(self) -> str:
        """The network they are of; empty if that is not known."""
        if self.source.published is not None:
            return self.source.published.backbone
        return self.trained.model.backbone if self.trained is not None else ""

    @property
    def prepared(self) -> Prepared | None:
        """How pictures were prepared for them; None if that is not known."""
        if (published := self.source.published) is not None:
            return Prepared(published.name, published.size, published.mean, published.deviation)
        if self.trained is None or len(self.trained.model.shape) != 3:
            return None
        model = self.trained.model
        height, width = model.shape[1:]
        return Prepared(self.source.name, (height, width), model.pixel_mean, model.pixel_deviation)


def read_pretrained(settings: ServerSettings) -> Pretrained | None:
    """The weights that are asked for; None where the first model is drawn."""
    source = find_source(settings)
    if source is None:
        return None
    content = read_weights(have_file(source, settings).file)
    found = Pretrained(source, content, _read_run(content.about))
    _check_backbone(found, settings)
    return found


def check_weights(settings: ServerSettings) -> None:
    """Read the weights; and where the network is torchvision's, and so known without the sites, see whether they fit it
    and whether it has what is to be frozen.
    """
    pretrained = read_pretrained(settings)
    backbone = settings.backbone or (pretrained.backbone if pretrained else "")
    if not backbone.startswith(PREFIX):
        return
    known = pretrained.prepared if pretrained else None
    size = (settings.image_size,) * 2 if settings.image_size else known.size if known else USUAL_SIZE
    model = Model(backbone, (COLOURS, *size), CLASSES, settings.encoder_projector)
    frozen = tuple(settings.freeze)
    spec = RunSpec("check", settings.method, dict(settings.set), model, (), rounds=1, seed=0, frozen=frozen)
    if pretrained is not None:
        _fit(pretrained, spec)
    explain_frozen(spec)


def begin_from(pretrained: Pretrained, spec: RunSpec) -> RunSpec:
    """Pin the weights in a specification, and say in it what is taken of them; refuse those of which nothing fits."""
    fit = _fit(pretrained, spec)
    _log(pretrained, fit)
    pinned = Weights(pretrained.source.name, pretrained.content.sha256, digest_of(fit.taken))
    chosen = {**spec.chosen, "weights": explain(pretrained, fit)}
    return replace(spec, weights=pinned, chosen=chosen)


def take_weights(settings: ServerSettings, spec: RunSpec) -> Mapping[str, Tensor] | None:
    """The tensors that a specification pins, from the file that the settings name: another file is refused."""
    if spec.weights is None:
        if settings.weights:
            raise SettingError(
                f"--weights {settings.weights} with a specification that begins without weights",
                expected="no weights: the specification says all of the run",
                advice="leave --weights out",
            )
        return None
    pretrained = read_pretrained(settings)
    if pretrained is None:
        raise _other(spec.weights, "no --weights")
    if pretrained.content.sha256 == spec.weights.taken:
        return pretrained.content.tensors  # what a run's folder keeps
    if pretrained.content.sha256 != spec.weights.sha256:
        raise _other(spec.weights, f"{pretrained.source.name} with the SHA-256 {pretrained.content.sha256}")
    return _fit(pretrained, spec).taken


def explain(pretrained: Pretrained, fit: Fit) -> str:
    """What was taken and what was not, for people."""
    whole = "all" if fit.in_encoder == fit.encoder else f"{fit.in_encoder} of"
    heads = f"and {_join(fit.heads)}" if fit.heads else "no head"
    told = [
        f"{pretrained.source.name} (SHA-256 {pretrained.content.sha256[:12]}): taken are {whole} {fit.encoder} tensors "
        f"of the encoder, {heads}",
        _some("of another shape", [f"{name} ({words})" for name, words in sorted(fit.misfits.items())]),
        _some("not in the file", [name for name in fit.missing if name.startswith("encoder.")]),
        _some("in the file without a place here", fit.unused),
    ]
    return "; ".join(filter(None, told))


def _fit(pretrained: Pretrained, spec: RunSpec) -> Fit:
    with without_numbers():
        participant = methods.build_participant(spec)
    trained = pretrained.trained
    # Of other classes a head knows nothing, even if there are as many.
    heads = trained is None or trained.model.classes == spec.model.classes
    fit = fit_weights(pretrained.content.tensors, participant, heads=heads)
    if fit.in_encoder == 0:
        raise _nothing_fits(pretrained, fit, spec.model)
    return fit


def _read_run(about: Mapping[str, str]) -> RunSpec | None:
    """The run that a serving model says it is of; whatever else a file says of itself is not ours."""
    try:
        return RunSpec.from_json(json.dumps(json.loads(about["pfl"])["spec"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _check_backbone(pretrained: Pretrained, settings: ServerSettings) -> None:
    """Of two networks of torchvision many tensors are alike by chance: nobody means one's weights for the other."""
    published, named = pretrained.source.published, settings.backbone
    if published is not None and named.startswith(PREFIX) and named != published.backbone:
        raise SettingError(
            f"{published.name} is of {published.backbone}, and --backbone says {named}",
            expected="weights of the run's own network",
            advice=f"--backbone {published.backbone}, or leave --backbone out",
        )


def _nothing_fits(pretrained: Pretrained, fit: Fit, model: Model) -> SettingError:
    has = [*fit.misfits, *fit.unused]
    seen = f"no tensor of {pretrained.source.name} fits the encoder of {model.backbone}"
    like = (
        f"--backbone {pretrained.backbone}, which they are of"
        if pretrained.backbone
        else "another --backbone"
    )
    return SettingError(
        f"{seen}: it has {_join(has[:MOST_NAMED])}{', ...' if len(has) > MOST_NAMED else ''}",
        expected=f"{_join(fit.missing[:MOST_NAMED])}, ..., by these names or torchvision's, in the same shapes",
        advice=f"{like}, or weights of {model.backbone}",
    )


def _other(wanted: Weights, seen: str) -> SettingError:
    return SettingError(
        f"the specification begins from {wanted.source}, and there is {seen}",
        expected=f"the file with the SHA-256 {wanted.sha256}",
        advice="name it with --weights; a run's folder keeps what was taken of it: weights.safetensors",
    )


def _log(pretrained: Pretrained, fit: Fit) -> None:
    say = log.info if fit.in_encoder == fit.encoder else log.warning
    say(
        "weights",
        source=pretrained.source.name,
        sha256=pretrained.content.sha256,
        taken=len(fit.taken),
        heads=list(fit.heads),
        other_shape=dict(fit.misfits),
        missing=list(fit.missing),
        unused=list(fit.unused),
    )


def _some(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{what}: {', '.join(names[:MOST_NAMED])}{more}" if names else ""


def _join(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"

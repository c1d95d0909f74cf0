"""What sites agree on before a run: one class list by name, one input shape, one backbone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pfl_common.errors import DataError, Refused
from pfl_common.run import ClientId, Description, Model


@dataclass(frozen=True)
class Wish:
    """What the operator fixed; whatever is empty is chosen from the data."""

    backbone: str = ""
    image_size: int = 0
    encoder_projector: bool = False


def agree(sites: Mapping[ClientId, Description], wish: Wish) -> Model:
    """The model all these sites can train."""
    kinds = {description.kind for description in sites.values()}
    if len(kinds) > 1:
        listed = ", ".join(f"{site}: {d.kind}" for site, d in sorted(sites.items()))
        raise DataError(f"the sites hold different kinds of data ({listed})", expected="one kind for all")
    shape = _shape(sites, wish)
    classes = common_classes(sites)
    if len(classes) < 2:
        raise DataError(
            f"the whole federation knows {len(classes)} class ({', '.join(classes) or 'none'})",
            expected="at least two classes over all sites",
            advice="check the classes of each site's data, or wait for a site with another class: --sites",
        )
    return Model(wish.backbone or default_backbone(shape), shape, classes, wish.encoder_projector)


def common_classes(sites: Mapping[ClientId, Description]) -> tuple[str, ...]:
    """Equal lists keep their order; otherwise all names, sorted: a class has the same index everywhere."""
    lists = {description.classes for description in sites.values()}
    if len(lists) == 1:
        return lists.pop()
    return tuple(sorted({name for names in lists for name in names}))


def default_backbone(shape: tuple[int, ...]) -> str:
    """A small network for small images, a ResNet for large ones, layers of numbers for everything else."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        return "mlp"
    return "cnn" if max(shape[1:]) <= 64 else "resnet18"


def fits(description: Description, model: Model, site: ClientId) -> None:
    """Refuse a site whose data cannot be used in a run that has begun."""
    unknown = sorted(set(description.classes) - set(model.classes))
    if unknown:
        raise Refused(
            "classes",
            f"{site} has classes the run does not know: {', '.join(unknown[:5])}; expected some of "
            f"{', '.join(model.classes[:12])}: check --data, or begin a run with all sites present",
        )
    images = description.kind == "image" and len(description.shape) == 3 == len(model.shape)
    if not images and description.shape != model.shape:
        raise Refused(
            "shape",
            f"{site} has samples of shape {description.shape}, the run has {model.shape}: check --data",
        )


def _shape(sites: Mapping[ClientId, Description], wish: Wish) -> tuple[int, ...]:
    shapes = Counter(description.shape for _, description in sorted(sites.items()))
    images = all(len(shape) == 3 for shape in shapes) and next(iter(sites.values())).kind == "image"
    if not images:
        if len(shapes) > 1:
            listed = ", ".join(f"{site}: {d.shape}" for site, d in sorted(sites.items()))
            raise DataError(
                f"the sites disagree on the shape of a sample ({listed})", expected="one shape for all"
            )
        return next(iter(shapes))
    # Colour wins over grey, as grey can be replicated; the most common size wins, then the larger one.
    channels = max(shape[0] for shape in shapes)
    size = max(shapes, key=lambda shape: (shapes[shape], math.prod(shape)))[1:]
    return (channels, wish.image_size, wish.image_size) if wish.image_size else (channels, *size)

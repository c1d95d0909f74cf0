"""The changes by chance that training pictures can undergo: a closed list, each with its parameters and their bounds.

A run's specification names them in the order in which they are made. Pictures have values 0..1 then, and are scaled
by channel only afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal, TypeAlias, cast, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pfl_common.errors import nearest

MOST_STEPS = 16
"""Of one run's list: each costs time in every epoch."""

Strength: TypeAlias = Annotated[float, Field(gt=0, le=1)]
Fill: TypeAlias = Literal["black", "mean"]
"""What is put where nothing of the picture is left: 0, or the mean that the run's scaling takes away."""
_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Flip:
    """Mirrors a picture with a chance of `chance`: left to right, or upside down."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["flip"] = "flip"
    chance: Annotated[float, Field(ge=0, le=1)] = 0.5
    axis: Literal["horizontal", "vertical"] = "horizontal"


@dataclass(frozen=True)
class Rotate:
    """Turns a picture about its middle by an angle from -degrees to degrees."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["rotate"] = "rotate"
    degrees: Annotated[float, Field(gt=0, le=180)] = 30.0
    interpolation: Literal["nearest", "bilinear"] = "nearest"
    fill: Fill = "black"


@dataclass(frozen=True)
class Crop:
    """Adds `padding` pixels on each side and cuts a window of the picture's size out of that."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["crop"] = "crop"
    padding: Annotated[int, Field(ge=1, le=128)] = 4
    fill: Fill = "black"


@dataclass(frozen=True)
class Zoom:
    """Enlarges a window that covers from `smallest` to all of the picture's area."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["zoom"] = "zoom"
    smallest: Annotated[float, Field(ge=0.05, le=1)] = 0.8


@dataclass(frozen=True)
class Shift:
    """Moves a picture by at most `share` of its height and of its width."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["shift"] = "shift"
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    fill: Fill = "black"


@dataclass(frozen=True)
class Brightness:
    """Multiplies all values by a factor from 1 - strength to 1 + strength."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["brightness"] = "brightness"
    strength: Strength = 0.2


@dataclass(frozen=True)
class Contrast:
    """Spreads values about the picture's mean grey by a factor from 1 - strength to 1 + strength."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["contrast"] = "contrast"
    strength: Strength = 0.2


@dataclass(frozen=True)
class Saturation:
    """Weakens or strengthens colours by a factor from 1 - strength to 1 + strength; grey pictures stay as they are."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["saturation"] = "saturation"
    strength: Strength = 0.2


@dataclass(frozen=True)
class Noise:
    """Adds to each value a normal number of this deviation."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    name: Literal["noise"] = "noise"
    deviation: Strength = 0.05


Step: TypeAlias = Flip | Rotate | Crop | Zoom | Shift | Brightness | Contrast | Saturation | Noise
Steps: TypeAlias = tuple[Annotated[Step, Field(discriminator="name")], ...]
KINDS: dict[str, type[Step]] = {kind.__dataclass_fields__["name"].default: kind for kind in get_args(Step)}
"""By the name under which a list names them."""

PAPERS = "papers"
PRESETS: dict[str, Steps] = {
    "none": (),
    "flip": (Flip(),),
    PAPERS: (Flip(), Rotate()),
    # Left and right mean something in a patient: nothing is mirrored.
    "medical": (
        Rotate(degrees=10, interpolation="bilinear"),
        Shift(share=0.05),
        Zoom(smallest=0.9),
        Brightness(strength=0.1),
        Contrast(strength=0.1),
    ),
}
"""By name; of `papers` it is what they do to photographs, for data sets of which they say nothing else."""


def read(said: object) -> str | Steps:
    """A preset by its name, or a list as TOML has it; ValueError says what was wrong and what there is."""
    if isinstance(said, str):
        if said not in PRESETS:
            raise ValueError(f"{nearest(said, PRESETS)}, or a list [[augment]] in the file of --config")
        return said
    if not isinstance(said, Sequence) or len(said) > MOST_STEPS:
        raise ValueError(
            f"a preset ({', '.join(PRESETS)}), or a list [[augment]] of at most {MOST_STEPS} changes"
        )
    return tuple(_read_step(one, place) for place, one in enumerate(said, start=1))


def _read_step(said: object, place: int) -> Step:
    if isinstance(said, tuple(KINDS.values())):
        return cast(Step, said)
    name = said.get("name") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(name, str) or name not in KINDS:
        raise ValueError(
            f'a name for change {place} of the list, such as name = "flip"; {nearest(str(name), KINDS)}'
        )
    known = [one.name for one in fields(KINDS[name])]
    if odd := [key for key in said if key not in known]:
        raise ValueError(f"no {odd[0]!r} for {name!r} (change {place}); {nearest(str(odd[0]), known[1:])}")
    try:
        step: Step = TypeAdapter(KINDS[name]).validate_python(dict(said))
        return step
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        bound = re.sub(r"^Input should be ", "", first["msg"])
        raise ValueError(f"{first['loc'][-1]!r} of {name!r} (change {place}) to be {bound}") from None


def tell(steps: Steps) -> str:
    """A list in words: `flip (chance 0.5, axis horizontal), rotate (...)`."""
    return ", ".join(f"{one.name} ({', '.join(_tell_settings(one))})" for one in steps) or "none"


def _tell_settings(step: Step) -> list[str]:
    values = {one.name: getattr(step, one.name) for one in fields(step) if one.name != "name"}
    return [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    ]

"""The typefaces that digits are drawn with: a short fixed list, so that equal calls draw equal pictures.

Faces of the shifted test part come from other families than all other faces. Nothing else that is installed is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pfl_common.errors import DataError


@dataclass(frozen=True)
class Family:
    """Font files of one family, and the package that contains them."""

    package: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Cast:
    """The families for training, validation and test examples, and those reserved for the shifted test."""

    train: tuple[Family, ...]
    shifted: tuple[Family, ...]


_MATPLOTLIB = "matplotlib"

SYNTH = Cast(
    train=(
        Family(_MATPLOTLIB, ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf")),
        Family(_MATPLOTLIB, ("DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSerif-Italic.ttf")),
        Family(_MATPLOTLIB, ("cmr10.ttf", "cmb10.ttf", "cmti10.ttf")),
    ),
    shifted=(
        Family(_MATPLOTLIB, ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")),
        Family(_MATPLOTLIB, ("STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralItalic.ttf")),
        Family(_MATPLOTLIB, ("cmss10.ttf",)),
    ),
)

STREET = Cast(
    train=(
        Family("fonts-roadgeek", ("RG2014B.ttf", "RG2014D.ttf", "RG2014F.ttf")),
        Family("fonts-bebas-neue", ("BebasNeue-Regular.otf", "BebasNeue-Bold.otf")),
        Family("fonts-league-spartan", ("LeagueSpartan-Medium.otf", "LeagueSpartan-Bold.otf")),
        Family("fonts-dosis", ("Dosis-Medium.otf", "Dosis-Bold.otf")),
        Family("fonts-cabin", ("Cabin-Medium.otf", "Cabin-BoldItalic.otf")),
    ),
    shifted=(
        Family("fonts-opendin", ("OSP-DIN.ttf",)),
        Family("fonts-national-park", ("NationalPark-Regular.otf", "NationalPark-Heavy.otf")),
        Family("fonts-oxygen", ("Oxygen-Sans.ttf", "Oxygen-Sans-Bold.ttf")),
        Family("fonts-play", ("Play-Regular.ttf", "Play-Bold.ttf")),
    ),
)

HAND = Cast(
    train=(
        Family(
            "fonts-bwht",
            (
                "BecauseWeBuild-Regular.otf", "BecauseWeConnect-Regular.otf", "BecauseWeCreate-Regular.otf",
                "BecauseWeLearn-Regular.otf", "BecauseWeMentor-Regular.otf", "BecauseWeOrganize-Regular.otf",
            ),
        ),
        Family("fonts-dkg-handwriting", ("dkg.ttf", "dkgBd.ttf")),
        Family("fonts-breip", ("Breip.ttf",)),
        Family("fonts-humor-sans", ("Humor-Sans.ttf",)),
        Family("fonts-rufscript", ("Rufscript010.ttf",)),
        Family("fonts-kristi", ("Kristi.ttf",)),
    ),
    shifted=(
        Family("fonts-sjfonts", ("SteveHand.ttf", "Delphine.ttf")),
        Family("fonts-tlwg-purisa-ttf", ("Purisa.ttf", "Purisa-Bold.ttf")),
        Family("fonts-smc-chilanka", ("Chilanka-Regular.otf",)),
        Family("fonts-tomsontalks", ("TomsonTalks.ttf",)),
    ),
)  # fmt: skip


def find_faces(families: Sequence[Family], folders: Iterable[Path]) -> list[Path]:
    """The files of all these families, in the order of the list; one that is not installed is an error."""
    wanted = {name for family in families for name in family.files}
    installed = _installed(wanted, [*_matplotlib_fonts(), *(folder.expanduser() for folder in folders)])
    absent = {family.package: None for family in families if not set(family.files) <= set(installed)}
    if absent:
        missing = sorted(wanted - set(installed))
        raise DataError(
            f"{len(missing)} of {len(wanted)} fonts are not installed: {', '.join(missing)}",
            expected="every font of the list, or the pictures would differ from one machine to the next",
            advice=f"install them ({_how(absent)}), or leave out the domains drawn with them",
        )
    return [installed[name] for family in families for name in family.files]


def _how(packages: Iterable[str]) -> str:
    debian = [package for package in packages if package != _MATPLOTLIB]
    pip = "pip install matplotlib" if _MATPLOTLIB in packages else ""
    apt = f"apt install {' '.join(debian)}" if debian else ""
    return " and ".join(filter(None, (pip, apt)))


def _installed(wanted: set[str], folders: Iterable[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in wanted.intersection(names):
                # the first folder wins, and in it the first path by name: the disk's order must not matter
                candidate = Path(place) / name
                known = found.get(name)
                if known is None or (known.is_relative_to(folder) and candidate < known):
                    found[name] = candidate
    return found


def _matplotlib_fonts() -> list[Path]:
    """Matplotlib's own fonts, found without importing matplotlib."""
    spec = importlib.util.find_spec(_MATPLOTLIB)
    return [Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"] if spec and spec.origin else []


def fingerprints(faces: Iterable[Path]) -> dict[str, str]:
    """File name and sha256 of every face, to be stored with what was drawn."""
    return {face.name: hashlib.sha256(face.read_bytes()).hexdigest() for face in faces}

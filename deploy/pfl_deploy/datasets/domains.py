"""Six digit domains, one site each: the same ten classes, six kinds of pictures (feature shift).

| domain      | pictures |
|-------------|----------|
| `mnist`     | real: MNIST, grey, framed to 32x32 |
| `mnist_m`   | MNIST digits over photographs: |photo patch - digit| |
| `optdigits` | real: UCI optdigits, 8x8 handwriting made large |
| `synth`     | printed digits on plain colour, with neighbours and jitter |
| `street`    | printed digits on photographs, with neighbours, tilted, blurred, noisy; it is **not** SVHN |
| `hand`      | handwriting typefaces, dark ink on paper |

All pictures are 32x32x3 uint8. No MNIST digit is in two domains or in two parts; tested digits come from MNIST's
own test set. Validation and test pictures are made like training pictures. Domains made here have one part more,
`shifted`: a second test, of pictures made otherwise (typefaces of other families, other parts of the photographs).
The two real ones have none: whatever would be called so would be invented. The cut of optdigits is the same for
every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from pfl_common.errors import SettingError, nearest
from pfl_common.randomness.seeded_draws import derive
from pfl_deploy.datasets import drawing, fonts, sources
from pfl_deploy.datasets.drawing import SIDE, Brush, Picture
from pfl_deploy.datasets.labelled import ClientData, Form, Indices, Labelled, Labels, Source
from pfl_deploy.datasets.sources import DIGITS, Stock
from pfl_deploy.datasets.write_site import write_folder

SIX = ("mnist", "mnist_m", "optdigits", "synth", "street", "hand")
SPLITS = ("train", "validation", "test", "shifted")
SHIFTED = ("mnist_m", "synth", "street", "hand")
"""The domains that have a shifted test part."""


@dataclass(frozen=True)
class Sizes:
    """The number of pictures of each site."""

    train: int = 1000
    validation: int = 200
    test: int = 500
    shifted: int | None = None
    """As many as test, if nothing else is said."""

    def __post_init__(self) -> None:
        if self.train < 1 or self.validation < 0 or self.test < 1 or self.of("shifted") < 0:
            raise SettingError(
                f"sizes {self}",
                expected="at least 1 for train and test, 0 or more for validation and shifted",
            )

    def of(self, split: str) -> int:
        """The number for one split by its name."""
        shifted = self.test if self.shifted is None else self.shifted
        return {"train": self.train, "validation": self.validation, "test": self.test, "shifted": shifted}[
            split
        ]


@dataclass(frozen=True)
class Workshop:
    """Makes the domains from a seed; the same seed and sizes give the same bytes."""

    seed: int = 0
    sizes: Sizes = Sizes()
    stock: Stock = field(default_factory=Stock)

    def make(self, name: str) -> ClientData:
        """One domain's pictures."""
        if name not in _MAKERS:
            raise SettingError(f"unknown domain {name!r}", advice=nearest(name, SIX))
        return _MAKERS[name](self)

    def write(self, out: Path, *, names: Sequence[str] = SIX, form: Form = "npz") -> list[Path]:
        """One folder per domain below `out`; the domains are all made before the first is written."""
        for name in names:
            _check_enough(name, self.sizes)
        # Before minutes of drawing, and for all domains at once: one installation is enough.
        fonts.find_faces(self._families(names), self.stock.fonts)
        made = {name: self.make(name) for name in names}
        return [write_folder(out / name, data, form=form) for name, data in made.items()]

    def _families(self, names: Sequence[str]) -> list[fonts.Family]:
        """The typefaces of all these domains."""
        casts = [_CASTS[name] for name in names if name in _CASTS]
        shifted = [family for cast in casts for family in cast.shifted] if self.sizes.of("shifted") else []
        return [family for cast in casts for family in cast.train] + shifted

    def generator(self, domain: str, split: str) -> np.random.Generator:
        """Chance for one split of one domain: no other split or domain changes it."""
        return np.random.default_rng(derive("pfl split", self.seed, domain, split))

    @cached_property
    def mnist_source(self) -> Source:
        """MNIST, read once for the two domains that need it."""
        return sources.mnist(self.stock)

    @cached_property
    def photographs(self) -> list[Picture]:
        """The two photographs."""
        return sources.photos()


_Draw: TypeAlias = Callable[[int, Brush], Picture]


def _assemble(shop: Workshop, name: str, parts: Mapping[str, Labelled], **notes: object) -> ClientData:
    sizes = {split: len(part) for split, part in parts.items()}
    origin = {"domain": name, "seed": shop.seed, "sizes": sizes, **notes}
    return ClientData(
        DIGITS,
        parts["train"],
        parts["test"],
        parts["validation"],
        shifted=parts.get("shifted"),
        origin=origin,
    )


def _splits(name: str) -> tuple[str, ...]:
    return SPLITS if name in SHIFTED else SPLITS[:-1]


def mnist_share(domain: str, split: str, count: int, *, seed: int) -> Indices:
    """Which MNIST digits a domain may use: `mnist` has the first half of a drawn order, `mnist_m` the second.

    Training and validation digits are indices into MNIST's training set, 25,000 and 5,000 in each half; tested
    digits are indices into its test set, 5,000 in each half, of which `mnist_m` keeps 2,500 for its shifted part.
    """
    half = ("mnist", "mnist_m").index(domain)
    pool = _mnist_pool(split)
    order = np.random.default_rng(derive("pfl split", seed, "mnist order", pool)).permutation(
        10_000 if pool == "test" else 60_000
    )
    mine: Indices = order.reshape(2, -1)[half]
    start, room = _MNIST_ROOMS[domain][split]
    _check_room(domain, split, count=count, room=room)
    return mine[start : start + count]


def _check_room(domain: str, split: str, *, count: int, room: int) -> None:
    if count > room:
        raise SettingError(
            f"{count} {split} pictures asked of {domain}", expected=f"at most {room}", advice="ask for fewer"
        )


def _check_enough(name: str, sizes: Sizes) -> None:
    """Check that there are enough real digits, before any is downloaded."""
    for split, (_, room) in _MNIST_ROOMS.get(name, {}).items():
        _check_room(name, split, count=sizes.of(split), room=room)
    if name == "optdigits":
        _check_optdigits(sizes, len(sources.optdigits().train))


_MNIST_ROOMS = {
    "mnist": {"train": (0, 25_000), "validation": (25_000, 5_000), "test": (0, 5_000)},
    "mnist_m": {
        "train": (0, 25_000),
        "validation": (25_000, 5_000),
        "test": (0, 2_500),
        "shifted": (2_500, 2_500),
    },
}


def _mnist_pool(split: str) -> str:
    """Which of MNIST's own two parts a split's digits come from."""
    return "test" if split in ("test", "shifted") else "train"


def _mnist(shop: Workshop) -> ClientData:
    parts = {split: _framed_digits(shop, "mnist", split) for split in _splits("mnist")}
    return _assemble(shop, "mnist", parts, licence=shop.mnist_source.licence)


def _mnist_m(shop: Workshop) -> ClientData:
    parts = {}
    for split in _splits("mnist_m"):
        digits = _framed_digits(shop, "mnist_m", split)
        brush = Brush(shop.generator("mnist_m", split), photos=_regions(shop.photographs, split))
        patches = [drawing.photo_patch(brush, SIDE, crop=(SIDE, 3 * SIDE)) for _ in range(len(digits))]
        ground = np.asarray(patches, dtype=np.int16).reshape(-1, SIDE, SIDE, 3)
        parts[split] = Labelled(np.abs(ground - digits.x).astype(np.uint8), digits.y)
    return _assemble(
        shop,
        "mnist_m",
        parts,
        licence=shop.mnist_source.licence,
        photographs="scikit-learn: china.jpg, flower.jpg",
    )


def _framed_digits(shop: Workshop, domain: str, split: str) -> Labelled:
    source = shop.mnist_source.test if _mnist_pool(split) == "test" else shop.mnist_source.train
    digits = source.take(mnist_share(domain, split, shop.sizes.of(split), seed=shop.seed))
    framed = np.pad(digits.x, ((0, 0), (2, 2), (2, 2)))
    return Labelled(np.repeat(framed[..., None], 3, axis=3), digits.y)


def _optdigits(shop: Workshop) -> ClientData:
    source = sources.optdigits()
    order = stratified_order(source.train.y)
    train, validation, test = (shop.sizes.of(split) for split in _splits("optdigits"))
    _check_optdigits(shop.sizes, len(order))
    # training digits from the far end, so that a larger test or validation part never moves them
    chosen = {
        "test": order[:test],
        "validation": order[test : test + validation],
        "train": order[::-1][:train],
    }
    parts = {split: _enlarged(source.train.take(indices)) for split, indices in chosen.items()}
    note = "cut by class, not by writer: this copy has no writer numbers; the cut is the same for every seed"
    return _assemble(shop, "optdigits", parts, licence=source.licence, note=note)


def _check_optdigits(sizes: Sizes, room: int) -> None:
    asked = sum(sizes.of(split) for split in _splits("optdigits"))
    if asked > room:
        raise SettingError(
            f"{asked} pictures asked of optdigits",
            expected=f"at most {room} in all, which is every one there is",
            advice="ask for smaller sizes, or leave this domain out",
        )


def stratified_order(labels: Labels) -> Indices:
    """A fixed shuffled order whose every beginning has the classes in nearly their overall shares."""
    rng = np.random.default_rng(derive("pfl split", "optdigits order"))
    shuffled = rng.permutation(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    return shuffled[np.argsort(rank[shuffled], kind="stable")]


def _enlarged(digits: Labelled) -> Labelled:
    """8x8 made 24x24, about as tall as a framed MNIST digit, in a black frame."""
    frames = np.zeros((len(digits), SIDE, SIDE, 3), np.uint8)
    for frame, small in zip(frames, digits.x, strict=True):
        large = Image.fromarray(small).resize((24, 24), Image.Resampling.BICUBIC)
        frame[4:28, 4:28] = np.asarray(large)[..., None]
    return Labelled(frames, digits.y)


def _drawn(shop: Workshop, name: str, draw: _Draw) -> ClientData:
    cast = _CASTS[name]
    usual = fonts.find_faces(cast.train, shop.stock.fonts)
    other = fonts.find_faces(cast.shifted, shop.stock.fonts) if shop.sizes.of("shifted") else []
    parts = {}
    for split in _splits(name):
        photographs = _regions(shop.photographs, split) if draw is drawing.street else ()
        brush = Brush(shop.generator(name, split), other if split == "shifted" else usual, photographs)
        labels = brush.rng.permutation(np.arange(shop.sizes.of(split), dtype=np.int64) % len(DIGITS))
        pictures = np.asarray([draw(int(digit), brush) for digit in labels], dtype=np.uint8)
        parts[split] = Labelled(pictures.reshape(-1, SIDE, SIDE, 3), labels)
    used = {
        split: fonts.fingerprints(faces) for split, faces in (("train", usual), ("shifted", other)) if faces
    }
    return _assemble(shop, name, parts, typefaces=used)


def _regions(photographs: Sequence[Picture], split: str) -> list[Picture]:
    """The lower third of every photograph for the shifted test, the upper two thirds for everything else."""
    cuts = [len(photo) * 2 // 3 for photo in photographs]
    return [p[cut:] if split == "shifted" else p[:cut] for p, cut in zip(photographs, cuts, strict=True)]


_CASTS = {"synth": fonts.SYNTH, "street": fonts.STREET, "hand": fonts.HAND}
"""The typefaces of the domains that are drawn."""
_MAKERS: dict[str, Callable[[Workshop], ClientData]] = {
    "mnist": _mnist,
    "mnist_m": _mnist_m,
    "optdigits": _optdigits,
    "synth": lambda shop: _drawn(shop, "synth", drawing.synth),
    "street": lambda shop: _drawn(shop, "street", drawing.street),
    "hand": lambda shop: _drawn(shop, "hand", drawing.hand),
}

"""Agrees on a model for all sites: one class list by name, one input shape, one backbone; names the sites that do not
fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pfl_common.errors import DataError, Refused, SettingError
from pfl_common.spec.data_description import alike, kind_of
from pfl_common.spec.run import ClientId, Description, InputKind, Model, Values
from pfl_common.spec.table_schema import Column, count_width
from pfl_server.decisions import channel_scaling, input_choice, picture_size, table_choice, text_choice
from pfl_server.decisions.class_names import common_classes, show_name
from pfl_server.decisions.input_choice import Range, Wish

ORDERS_APART = 3
"""Float numbers a thousand times larger or smaller than at the other sites are in another unit."""

SHORTEST_WINDOW = 28
"""Steps that the network for windows needs at least."""

_CALLED: dict[str, str] = {
    "image": "pictures",
    "array": "plain numbers",
    "windows": "windows of sensors",
    "tokens": "texts",
    "table": "tables",
}
_STORED = {
    "bytes": "pictures of 8 bits",
    "wide": "pictures of 16 bits",
    "unit": "pictures of floats from 0 to 1",
    "byte_floats": "pictures of floats from 0 to 255",
    "signed": "pictures of other floats",
    "numbers": "numbers that are no pictures",
}


def agree(sites: Mapping[ClientId, Description], wish: Wish) -> Model:
    """The model all these sites can train."""
    kinds = {alike(description.kind) for description in sites.values()}
    if len(kinds) > 1:
        listed = ", ".join(f"{site}: {d.kind}" for site, d in sorted(sites.items()))
        raise DataError(f"the sites hold different kinds of data ({listed})", expected="one kind for all")
    kind = _kind(sites)
    _check_wish(kind, wish)
    shape = _shape(sites, wish)
    if odd := odd_ones(sites):
        raise DataError("; ".join(words for _, words in sorted(odd.items())), expected="one kind for all")
    classes = common_classes({site: one.classes for site, one in sites.items()})
    if len(classes) < 2:
        raise DataError(
            f"the whole federation knows {len(classes)} class ({', '.join(classes) or 'none'})",
            expected="at least two classes over all sites",
            advice="check the classes of each site's data, or wait for a site with another class: --sites",
        )
    if hindrance := text_choice.tell_hindrance(sites, wish.words, wish.fewest_sites):
        raise DataError(hindrance)
    scale, (mean, deviation) = input_choice.choose_range(sites, wish), _standards(sites, wish)
    pixels = channel_scaling.choose_scaling(sites, wish, shape[0])
    words, table = text_choice.choose_words(sites, wish.words, wish.fewest_sites), _table(sites, wish)
    return Model(
        wish.backbone or default_backbone(shape, kind),
        shape,
        classes,
        wish.encoder_projector,
        values=_values(sites),
        low=scale.low,
        high=scale.high,
        per_picture=scale.per_picture,
        mean=mean,
        deviation=deviation,
        kind=kind,
        tokens=words.tokens,
        numbering=words.numbering,
        words=words.words,
        columns=max((one.columns for one in sites.values()), default=()),
        table=table,
        pixel_mean=pixels.mean,
        pixel_deviation=pixels.deviation,
    )


def _table(sites: Mapping[ClientId, Description], wish: Wish) -> tuple[Column, ...]:
    return table_choice.choose_table(
        sites, fewest_sites=wish.fewest_sites, standardise=wish.standardise == "agreed"
    )


def _kind(sites: Mapping[ClientId, Description]) -> InputKind:
    """A table is an array whose samples are rows: one site that says so is enough."""
    kinds = {description.kind for description in sites.values()}
    return "table" if "table" in kinds else min(kinds)


def _check_wish(kind: InputKind, wish: Wish) -> None:
    """Refuse what the operator says of other data than the sites have."""
    said = {
        "--image-size": ("image", bool(wish.image_size)),
        "--pixel-range": ("image", wish.pixel_range != "auto"),
        "--normalise": ("image", wish.normalise != "none"),
        "--augment": ("image", wish.augment not in ("none", ())),
        "--vocabulary": ("tokens", bool(wish.words)),
        "--length": ("tokens", bool(wish.length)),
    }
    for option, (right, named) in said.items():
        if named and kind != right:
            raise SettingError(
                f"{option} is named, and the sites hold {_CALLED[kind]}",
                expected=f"{option} for {_CALLED[right]} alone",
                advice=f"leave {option} out, or check --data at the sites",
            )


def default_backbone(shape: tuple[int, ...], kind: InputKind = "image") -> str:
    """A short ResNet for small images, a longer one for large ones, networks of their own for texts and for windows
    that are long enough, layers of numbers for everything else.

    Both normalise over the batch: without that DualFed's stages learn next to nothing from scratch in a short run.
    """
    if kind == "tokens":
        return "fasttext"
    if kind == "windows" and shape[-1] >= SHORTEST_WINDOW:
        return "har_cnn"
    if len(shape) != 3 or min(shape[1:]) < 16:
        return "mlp"
    return "resnet8" if max(shape[1:]) <= 64 else "resnet18"


def explain_backbone(model: Model, wish: Wish) -> dict[str, str]:
    """Which network was chosen for data that are no pictures, and that it was chosen."""
    if wish.backbone or model.kind in ("image", "array"):
        return {}
    return {"backbone": f"{model.backbone}, for {_CALLED[model.kind]}; --backbone NAME chooses another"}


def odd_ones(sites: Mapping[ClientId, Description]) -> dict[ClientId, str]:
    """For each site whose data are of another form than most sites' what was seen, what was expected, what to do.

    Kind, rank, place of the channels, how numbers are stored and, for floats, how large they are; not sizes of pictures
    and not classes. Of two forms that are as common the one with more samples is the federation's.
    """
    if not sites:
        return {}
    usual = _most_usual(sites)
    odd = {
        site: _say_odd(site, own, usual) for site, own in sorted(sites.items()) if _form(own) != _form(usual)
    }
    odd |= table_choice.odd_tables({site: one for site, one in sites.items() if site not in odd})
    odd |= _of_other_columns({site: one for site, one in sites.items() if site not in odd})
    return odd | _of_another_size({site: one for site, one in sites.items() if site not in odd})


def fits(description: Description, model: Model, site: ClientId) -> None:
    """Refuse a site whose data cannot be used in a run that has begun."""
    unknown = sorted(set(description.classes) - set(model.classes))
    if unknown:
        raise Refused(
            "classes",
            f"{site} has classes the run does not know: {', '.join(unknown[:5])}; expected some of "
            f"{', '.join(model.classes[:12])}: check --data, or begin a run with all sites present",
        )
    _fit_kind(description, model, site)
    if model.table and description.table:
        table_choice.check_table(site, description, model.table)
        return
    images = description.kind == "image" and len(description.shape) == 3 == len(model.shape)
    if not images and description.kind != "tokens" and description.shape != model.shape:
        raise Refused(
            "shape",
            f"{site} has samples of shape {description.shape}, the run has {model.shape}: check --data",
        )
    if images and description.values not in {
        model.values,
        "bytes" if model.values == "wide" else model.values,
    }:
        raise Refused(
            "shape",
            f"{site} has {_STORED[description.values]}, the run was agreed on {_STORED[model.values]}: "
            "store them alike, or begin a run with all sites present; in a run of an earlier release, which took "
            'pictures of floats for plain numbers, say so in data.json: {"kind": "array"}',
        )


def _fit_kind(description: Description, model: Model, site: ClientId) -> None:
    run = kind_of(model, description.kind)
    if alike(description.kind) != alike(run):
        raise Refused(
            "shape",
            f"{site} has {tell_form(description)}, the run is about {_CALLED[run]} of shape {model.shape}: check "
            '--data, and "kind" in data.json',
        )
    if bool(description.table) != bool(model.table):
        raise Refused(
            "shape",
            f"{site} has {tell_form(description)}, the run reads {_name_rows(bool(model.table))}: store them so",
        )
    own = "words" if description.numbering == "withheld" else description.numbering
    if own != model.numbering or (description.tokens or model.tokens) != model.tokens:
        raise Refused(
            "shape",
            f"{site} has {tell_form(description)}, the run numbers words by {model.numbering} ({model.tokens}): check "
            'vocabulary.json, and "vocabulary" in data.json',
        )
    if model.columns and description.columns not in ((), model.columns):
        raise Refused("shape", f"{site} {_say_columns(description.columns, model.columns)}")


def _shape(sites: Mapping[ClientId, Description], wish: Wish) -> tuple[int, ...]:
    shapes = {description.shape for description in sites.values()}
    images = all(len(shape) == 3 for shape in shapes) and next(iter(sites.values())).kind == "image"
    if images:
        # Colour wins over grey, as grey can be replicated.
        size = picture_size.choose_size(sites, side=wish.image_size, prepared=wish.prepared)
        return max(shape[0] for shape in shapes), *size
    if next(iter(sites.values())).kind == "tokens":
        return (text_choice.choose_length(sites, wish.length),)
    if table := _table(sites, wish):
        return (count_width(table),)
    if len(shapes) > 1:
        listed = ", ".join(f"{site}: {d.shape}" for site, d in sorted(sites.items()))
        raise DataError(
            f"the sites disagree on the shape of a sample ({listed})", expected="one shape for all"
        )
    return next(iter(shapes))


def _values(sites: Mapping[ClientId, Description]) -> Values:
    """How the run's numbers are stored; of 8 and 16 bits the wider."""
    values = {description.values for description in sites.values()}
    return "wide" if "wide" in values else min(values)


def _standards(
    sites: Mapping[ClientId, Description], wish: Wish
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the inputs; none for pictures that have a range."""
    standardised = all(description.values in ("signed", "numbers") for description in sites.values())
    if wish.standardise == "none" or not standardised or input_choice.choose_range(sites, wish) != Range():
        return (), ()
    return input_choice.agree_moments(sites)


def _form(one: Description) -> tuple[object, ...]:
    """The properties of the data that must be equal at all sites."""
    if one.kind == "image":
        # 8 and 16 bits go together: each has a full scale of its own.
        return "image", len(one.shape), "bytes" if one.values == "wide" else one.values
    if one.kind == "tokens":
        # Texts of any length go together: they are padded or cut.
        return "tokens", 1, (one.numbering in ("words", "withheld") or one.numbering, one.tokens)
    if one.table:
        # Columns are agreed by name, whatever others a site has.
        return "table", 1, "rows"
    return alike(one.kind), len(one.shape), one.shape


def _most_usual(sites: Mapping[ClientId, Description]) -> Description:
    votes: Counter[tuple[object, ...]] = Counter(_form(one) for one in sites.values())
    samples: Counter[tuple[object, ...]] = Counter()
    for one in sites.values():
        samples[_form(one)] += one.samples or 0
    return min((-votes[_form(one)], -samples[_form(one)], site, one) for site, one in sites.items())[-1]


def _say_odd(site: ClientId, own: Description, usual: Description) -> str:
    expected = f"expected: {tell_form(usual)}, as most sites have"
    return f"{site} has {tell_form(own)}; {expected}; what to do: {_advise(own, usual)}"


def tell_form(one: Description) -> str:
    """The kind of a site's data, in a few words."""
    if one.kind == "image":
        return f"{_STORED[one.values]}, {one.low:g}..{one.high:g}" if one.high else _STORED[one.values]
    if one.kind == "tokens":
        return text_choice.tell_numbering(one)
    if one.kind == "windows":
        return f"windows of {one.shape[0]} channels x {one.shape[1]} steps"
    if one.table:
        return f"{_name_rows(True)}, of {one.shape[0]} columns"
    if one.kind == "table":
        return f"a table of {one.shape[0]} columns"
    return f"numbers of shape {one.shape} that are no pictures"


def _name_rows(table: bool) -> str:
    """How tables are stored."""
    return "files of rows (CSV, Parquet, JSON lines)" if table else "arrays (npz)"


def _advise(own: Description, usual: Description) -> str:
    if own.kind == usual.kind == "image":
        return "store the pictures as the other sites do, or say in data.json what range theirs have"
    if bool(own.table) != bool(usual.table):
        return f"store them as {_name_rows(bool(usual.table))}, as the other sites do, or check --data"
    if alike(own.kind) == "array" and usual.kind == "image":
        said = _declare_pictures(own.shape)
        return (
            f"if they are pictures, say so in data.json: {said}; else check --data"
            if said
            else "check --data"
        )
    if own.kind == usual.kind == "tokens":
        return 'number the words as the other sites do: vocabulary.json, and "vocabulary" in data.json'
    if "tokens" in (own.kind, usual.kind) or "windows" in (own.kind, usual.kind):
        if own.kind == usual.kind:
            return 'bring the windows to that shape, or check --data and "layout" in data.json'
        said = f'{{"kind": "{usual.kind}"}}'
        return f"if they are {_CALLED[usual.kind]}, say so in data.json: {said}; else check --data"
    if own.kind == "image":
        return 'if they are no pictures, say so in data.json: {"kind": "array"}; else check --data'
    return "bring the samples to that shape, or check --data"


def _declare_pictures(shape: tuple[int, ...]) -> str:
    """The `data.json` that declares numbers of this shape to be pictures; empty if they cannot be any."""
    if len(shape) == 2:
        return '{"kind": "image"}'
    ends = {"channels_last": shape[-1], "channels_first": shape[0]} if len(shape) == 3 else {}
    layout = next((name for name, channels in ends.items() if channels in (1, 3)), "")
    return f'{{"kind": "image", "layout": "{layout}"}}' if layout else ""


def _of_other_columns(sites: Mapping[ClientId, Description]) -> dict[ClientId, str]:
    """Sites whose columns have other names than at most sites that name them."""
    named = {site: one.columns for site, one in sorted(sites.items()) if one.columns}
    votes = Counter(named.values())
    if len(votes) < 2:
        return {}
    usual = min((-count, columns) for columns, count in votes.items())[1]
    return {site: f"{site} {_say_columns(own, usual)}" for site, own in named.items() if own != usual}


def _say_columns(own: Sequence[str], usual: Sequence[str]) -> str:
    first = next((at for at, names in enumerate(zip(own, usual, strict=False)) if names[0] != names[1]), 0)
    same = "the same names in another order" if sorted(own) == sorted(usual) else "other names"
    return (
        f"has {same} of columns: its column {first + 1} is {show_name(own[first])}; expected: "
        f"{show_name(usual[first])}; what to do: bring the columns of x and of data.json into the others' order, or "
        "check --data"
    )


def _of_another_size(sites: Mapping[ClientId, Description]) -> dict[ClientId, str]:
    """Sites with floats a thousand times as large as at the site in the middle, or as small; of two none is in it."""
    largest = {
        site: max(abs(one.low), abs(one.high))
        for site, one in sorted(sites.items())
        if one.values in ("signed", "numbers")
    }
    known = sorted(size for size in largest.values() if size > 0)
    if len(known) < 3:
        return {}
    middle = known[len(known) // 2]
    return {
        site: f"{site} has numbers up to {size:g}; expected: about {middle:g}, as most sites have; "
        "what to do: bring them to the same unit, or check --data"
        for site, size in largest.items()
        if size > 0 and abs(math.log10(size / middle)) >= ORDERS_APART
    }

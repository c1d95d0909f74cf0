"""The card of an exported model: what it is, what goes in and out, how good it was, and what to mind."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from pfl_client.prediction import Predictor, Served
from pfl_common import methods
from pfl_common.spec.run import Model
from pfl_common.spec.table_schema import Column
from pfl_deploy.prediction.graph import INPUT, PROBABILITIES, SCORES, Form

MIND = (
    "- It was fitted to the data of one site: on data that came about otherwise it may do worse. Measure it there "
    "(`pfl evaluate`).\n"
    "- Probabilities are the softmax of scores. Whether they can be believed `pfl evaluate` says (calibration).\n"
    "- Its personal parts were trained on the site's own data: whoever is given this file is given them."
)
MIND_METADATA = (
    "\n- Its metadata holds the run's specification: the names of all sites, and of texts the words."
)
_TYPES = {torch.uint8: "uint8", torch.int32: "int32", torch.float32: "float32"}


def write(predictor: Predictor, file: Path, form: str, checked: str) -> str:
    """The card in Markdown."""
    served = predictor.served
    spec = served.spec
    method = " ".join(methods.load(spec.method).doc.strip().split("\n\n")[0].split())
    numbers = sum(value.numel() for value in served.participant.parameters())
    parts = [
        f"# {file.name}",
        f"The personalized model of the site `{served.site}` after run `{spec.id}`, trained by {len(spec.roster)} "
        f"sites in {spec.rounds} rounds of `{spec.method}`{served.place}. {method}",
        "## What it is",
        _table(
            {
                "network": f"{spec.model.backbone}, {numbers:,} parameters with all heads",
                "form": form,
                "made from": f"SHA-256 {served.sha256}",
                "settings": f"`{json.dumps(spec.settings, sort_keys=True)}`",
                "versions": ", ".join(f"{name} {number}" for name, number in sorted(spec.versions.items()))
                or "-",
                "check": checked,
            }
        ),
        "## Input",
        _tell_input(spec.model, form),
        "## Output",
        _tell_output(predictor, form),
        f"Classes, in the order of the outputs: {list_classes(predictor)}",
        "## How good it was",
        _tell_scores(served),
        "## What to mind",
        MIND + (MIND_METADATA if form == "safetensors" else ""),
    ]
    return "\n\n".join(parts) + "\n"


def list_classes(predictor: Predictor) -> str:
    """The classes as a JSON list."""
    return json.dumps(list(predictor.classes), ensure_ascii=False)


def _table(rows: dict[str, str]) -> str:
    lines = [f"| {name} | {words.replace('|', chr(92) + '|')} |" for name, words in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _tell_input(model: Model, form: str) -> str:
    own = Form(model)
    size = " x ".join(map(str, model.shape))
    if form == "safetensors":
        return f"`Predictor` and `pfl predict` read files and prepare them. The network takes N x {size}."
    return f"`{INPUT}`: {_TYPES[own.dtype]}, N x {size}. {_tell_preparation(own)}"


def _tell_preparation(own: Form) -> str:
    """The preprocessing inside the graph, and that which has to be done before it."""
    model = own.model
    if own.kind == "image":
        channels, height, width = model.shape
        colour = "grey (ITU-R 601)" if channels == 1 else "RGB"
        shown = "rescaled and windowed (DICOM), turned upright (EXIF)"
        sized = f"{shown}, {colour}, resized to {height} x {width} (Pillow bilinear), channels first"
        if own.dtype == torch.uint8:
            wide = _tell_range(
                model, " of 16 bits become bytes: round(255 (x - low) / (high - low)), clipped"
            )
            then = f", then {_tell_pixels(model)}" if model.pixel_mean else ""
            return f"Before: pictures are {sized}.{wide} In the graph: division by 255{then}."
        scaled = _tell_range(model, " become (x - low) / (high - low), clipped to 0..1")
        first = f"values{scaled} Pictures are then" if scaled else "pictures are"
        return f"Before: {first} {sized}. {_tell_moments(model)}"
    if own.kind == "tokens":
        return (
            f"Before: words become numbers by `{model.numbering}` (0 padding, 1 unknown, {model.tokens} in all); texts "
            "are padded with 0 or cut. The list of words stands in the serving model's specification. Texts of files "
            "are cut into words so: NFC, lower case, each run of letters, digits and underscores is one."
        )
    if model.table:
        columns = "\n".join(map(_tell_column, model.table))
        return (
            f"Before: a row becomes {model.shape[0]} numbers, column by column, in this order:\n\n{columns}"
        )
    named = f" Columns: {', '.join(model.columns)}." if model.columns else ""
    return f"Before: nothing.{named} {_tell_moments(model)}"


def _tell_column(column: Column) -> str:
    missing = "; then 1 where it is missing, else 0" if column.missing else ""
    if not column.categorical:
        scaled = f"(x - {column.mean:.9g}) / {column.deviation:.9g}"
        return f"- `{column.name}`: {scaled}, 0 where it is missing{missing}"
    if column.hashed:
        return f"- `{column.name}`: a 1 in the place of its SHA-256 among {column.hashed}, one for nothing{missing}"
    known = ", ".join(f"`{name}`" for name in column.categories)
    return f"- `{column.name}`: a 1 in the place of its category ({known}, any other){missing}"


def _tell_range(model: Model, words: str) -> str:
    if model.per_picture:
        return f"{words}, low and high being each picture's own."
    return f"{words}, low {model.low:g}, high {model.high:g}." if model.low < model.high else ""


def _tell_pixels(model: Model) -> str:
    """What becomes of each channel of a picture of values 0..1."""
    means, deviations = (
        ", ".join(f"{value:.6g}" for value in own) for own in (model.pixel_mean, model.pixel_deviation)
    )
    return f"of each channel (x - mean) / deviation with mean {means} and deviation {deviations}"


def _tell_moments(model: Model) -> str:
    if model.pixel_mean:
        return f"In the graph: {_tell_pixels(model)}."
    if not model.mean:
        return "In the graph: nothing is scaled."
    return "In the graph: the mean of all sites is taken away and their deviation divided by, as agreed for the run."


def _tell_output(predictor: Predictor, form: str) -> str:
    count = len(predictor.classes)
    heads = "".join(f"\n- `{SCORES}_{head}`: scores of the {head} head" for head in predictor.heads)
    if form == "safetensors":
        told = ", ".join(predictor.heads) or "one head alone"
        return f"A score for each of {count} classes; views beside the method's own prediction: {told}."
    return f"- `{PROBABILITIES}`: float32, N x {count}\n- `{SCORES}`: what the method predicts with{heads}"


def _tell_scores(served: Served) -> str:
    """The site's scores at the end of the run, if its history lies where the model was written; of the best model what
    it was chosen by.
    """
    model = served.file
    if (best := served.best) is not None:
        return (
            f"Chosen by the site's own {best.samples} validation samples: accuracy {best.accuracy:.4f} after round "
            f"{best.round}. The best of several numbers flatters: measure it on test samples (`pfl evaluate`)."
        )
    history = model.resolve().parents[1] / "history.jsonl"
    if model.parent.name != "serving" or not history.is_file():
        return "Not known here: the site's history does not lie beside the model."
    entries = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    last: dict[str, dict[str, float]] = next(
        (entry["scores"] for entry in reversed(entries) if entry["task"].endswith("-finish")), {}
    )
    rows = [
        f"| {name.removeprefix('pre/')} | {own['accuracy']:.4f} | {own.get('samples', 0):.0f} |"
        for name, own in sorted(last.items())
    ]
    head = [
        "Measured by the site at the end, on its own data:\n",
        "| part and view | accuracy | samples |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) if rows else "The site had no test samples."

"""The commands for a finished model: each reads its options and makes one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from pfl_common.app.logs import configure
from pfl_common.app.terminal import console as make_console

Model = Annotated[
    str,
    typer.Argument(help="A site's name, its folder, a run's folder there, or a serving.safetensors."),
]
Like = Annotated[
    Path | None,
    typer.Option(help="Data folder whose data.json, vocabulary.json, classes.json say how arrays are read."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="End with 0 although files could not be read; they are still told.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
WhichModel = Annotated[
    Literal["last", "best"],
    typer.Option(help="last: after the last round; best: of the best round, if the run kept it."),
]


def predict(
    model: Model,
    paths: Annotated[list[Path], typer.Argument(help="Pictures, .npz, .npy, tables as .csv, and folders.")],
    out: Annotated[
        str, typer.Option(help="File to write: .csv, .jsonl or .parquet; - is standard output.")
    ] = "-",
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet. [default: as the file is called]")
    ] = None,
    like: Like = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    which: WhichModel = "last",
) -> None:
    """Predict with a site's finished model, offline: class, probabilities, each head's view."""
    from pfl_deploy.prediction import predict as predicting

    configure(level="warning")
    asked = predicting.Asked(model, tuple(paths), out, format_, like, skip_bad, device, which)
    predicting.predict(asked, make_console(stderr=True))


def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Data folder, or an .npz with x and y, or a table as .csv.")],
    part: Annotated[
        str, typer.Option(help="Part of a data folder: test, shifted, validation, train or all.")
    ] = "test",
    label: Annotated[str, typer.Option(help="Table: the column of the class.")] = "",
    group: Annotated[
        str, typer.Option(help="Table: the column of the group (patient); intervals draw groups whole.")
    ] = "",
    like: Like = None,
    plots: Annotated[
        Path | None, typer.Option(help="Draw confusion matrix and calibration into this folder.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, max=100_000, help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    which: WhichModel = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure a site's finished model on labelled data: accuracy, macro-F1, AUC, calibration, intervals."""
    from pfl_deploy.prediction import evaluate as evaluating

    configure(level="warning")
    asked = evaluating.Asked(
        model, data, part, label, group, like, plots, resamples, seed, skip_bad, device, which
    )
    found, missing = evaluating.evaluate(asked, make_console(stderr=True))
    if as_json:
        make_console().print_json(evaluating.as_json(found))
    else:
        evaluating.show(found, make_console())
    missing.settle(len(found.scored))


def export(
    model: Model,
    to: Annotated[str, typer.Option(help="safetensors, onnx or torch (torch.export).")] = "safetensors",
    out: Annotated[Path | None, typer.Option(help="File to write. [default: SITE-RUN, here]")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Write ONNX although no runtime here can run it.")
    ] = False,
    which: WhichModel = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a site's finished model for other programs, checked to give equal outputs, with a card."""
    from pfl_deploy.prediction import export as exporting

    configure(level="warning")
    done = exporting.export(exporting.Asked(model, to, out, unchecked, which))
    if as_json:
        words = {"file": str(done.file), "card": str(done.card)}
        make_console().print_json(
            json.dumps({**words, "checked": done.checked, "difference": done.difference})
        )
    else:
        make_console().print(f"{done.file}: {done.checked}\n{done.card}: the model's card", markup=False)

"""The story of `pfl export`: write the model in another form, run the file and compare outputs, write a card."""

from __future__ import annotations

import importlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # onnxscript's operators have no types that fit

import torch
from torch import Tensor

from pfl_client.prediction import Predictor
from pfl_client.prediction.find_model import Which
from pfl_client.prediction.serving import read_served
from pfl_common.errors import SettingError, nearest
from pfl_deploy.prediction import model_card
from pfl_deploy.prediction.graph import INPUT, Form, Graph, differ, draws, expect

ENDINGS = {"safetensors": ".safetensors", "onnx": ".onnx", "torch": ".pt2"}
LARGEST_BATCH = 65_536
CHECKED = (1, 7, 32)
"""Batches that are compared: of one sample, and of more."""
ALLOWED = 1e-4
"""Difference between two runtimes: they sum in another order."""
Run = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Asked:
    """The command as it was typed."""

    model: str
    to: str
    out: Path | None = None
    unchecked: bool = False
    which: Which = "last"


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: Path
    card: Path
    checked: str
    """How it was compared, in words."""
    difference: float | None
    """The largest one; None: nothing was compared."""


def export(asked: Asked) -> Exported:
    """Write a model and its card; a file whose outputs differ from the model's is not kept."""
    if asked.to not in ENDINGS:
        raise SettingError(f"there is no form {asked.to!r} to export to", expected=nearest(asked.to, ENDINGS))
    can_check = _check_packages(asked)
    predictor = Predictor.load(asked.model, which=asked.which)
    served = predictor.served
    best = "" if served.best is None else "-best"
    file = asked.out or Path(f"{served.site}-{served.spec.id}{best}{ENDINGS[asked.to]}")
    if file.suffix != ENDINGS[asked.to]:
        raise SettingError(
            f"--out {file} is to be {asked.to}", expected=f"a file called *{ENDINGS[asked.to]}"
        )
    if file.resolve() == served.file.resolve():
        raise SettingError(f"--out {file} is the model itself", expected="another file")
    with _written(file) as part:
        checked, difference = _WRITE[asked.to](predictor, part, can_check)
    card = file.with_suffix(".md")
    card.write_text(model_card.write(predictor, file, asked.to, checked), encoding="utf-8")
    return Exported(file, card, checked, difference)


def _check_packages(asked: Asked) -> bool:
    """Check that the written file can be run here; an error says what to install, before anything is computed."""
    if asked.to != "onnx":
        return True
    for name in ("onnx", "onnxscript"):
        if not _is_there(name):
            raise SettingError(
                f"ONNX needs {name}, which is not installed",
                expected="the optional extra `export`",
                advice="pip install 'pfl-net[export]', or export to torch or safetensors",
            )
    can_check = _is_there("onnxruntime")
    if not can_check and not asked.unchecked:
        raise SettingError(
            "the ONNX file could not be checked: onnxruntime is not installed",
            expected="the optional extra `export`",
            advice="pip install 'pfl-net[export]', or write it all the same with --unchecked",
        )
    return can_check and not asked.unchecked


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


@contextmanager
def _written(file: Path) -> Iterator[Path]:
    """A temporary place to write to, which becomes the file if all goes well."""
    part = file.with_name(f"{file.stem}.part{file.suffix}")
    try:
        yield part
        os.replace(part, file)
    except OSError as error:
        raise SettingError(
            f"{file} cannot be written: {error.strerror}",
            expected="a file in a folder that may be written to",
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _copy(predictor: Predictor, part: Path, can_check: bool) -> tuple[str, float | None]:  # noqa: ARG001  # as the others
    """Copy the serving model, which describes itself."""
    shutil.copyfile(predictor.served.file, part)
    read_served(part)
    return "the file is the serving model, byte for byte, and was read again", 0.0


def _write_torch(predictor: Predictor, part: Path, can_check: bool) -> tuple[str, float | None]:  # noqa: ARG001
    program = _capture(predictor)
    torch.export.save(program, part)
    again = torch.export.load(part).module()
    return _compare(predictor, lambda samples: tuple(again(samples)), f"torch {torch.__version__}")


def _write_onnx(predictor: Predictor, part: Path, can_check: bool) -> tuple[str, float | None]:
    graph = Graph(predictor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own making; what counts is compared below
        program = torch.onnx.export(
            _capture(predictor),
            input_names=[INPUT],
            output_names=graph.outputs,
            custom_translation_table={torch.ops.aten._cdist_forward.default: _distances},
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    program.model.metadata_props["classes"] = model_card.list_classes(predictor)
    program.save(part)
    if not can_check:
        return "NOT checked: the file was not run by any ONNX runtime", None
    import onnxruntime

    session = onnxruntime.InferenceSession(part, providers=["CPUExecutionProvider"])

    def run(samples: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(one) for one in session.run(None, {INPUT: samples.numpy()}))

    return _compare(predictor, run, f"onnxruntime {onnxruntime.__version__}")


def _distances(one: Any, other: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:  # noqa: ARG001
    """Euclidean distances between rows: ONNX has no counterpart of torch's own operator."""
    import onnxscript

    op: Any = onnxscript.opset18
    last, rows, columns = (op.Constant(value_ints=[axis]) for axis in (-1, -2, -3))
    apart = op.Sub(op.Unsqueeze(one, rows), op.Unsqueeze(other, columns))
    return op.Sqrt(op.ReduceSum(op.Mul(apart, apart), last, keepdims=0))


def _capture(predictor: Predictor) -> torch.export.ExportedProgram:
    """The model as a graph of torch's operators, for batches of any size."""
    graph = Graph(predictor).eval()
    samples = graph.form.draw(CHECKED[1])
    if draws(graph, samples):
        raise SettingError(
            "this model draws when it predicts (its settings ask for noise): a graph of it cannot be compared",
            expected="a model that answers twice the same",
            advice="export to safetensors; FedCP predicts without noise with policy=gumbel_train or softmax",
        )
    batch = torch.export.Dim("batch", min=1, max=LARGEST_BATCH)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own making
        return torch.export.export(graph, (samples,), dynamic_shapes=({0: batch},))


def _compare(predictor: Predictor, run: Run, runtime: str) -> tuple[str, float]:
    """Run drawn samples through the written file and through the model."""
    form = Form(predictor.served.spec.model)
    largest = 0.0
    for count in CHECKED:
        samples = form.draw(count)
        with torch.no_grad():
            largest = max(largest, differ(run(samples), expect(predictor, form, samples)))
    if largest > ALLOWED:
        raise SettingError(
            f"what was written gives other outputs than the model: they differ by {largest:.2g} in {runtime}",
            expected=f"at most {ALLOWED:g}; the file was not kept",
            advice="export to safetensors, and tell us the method and network",
        )
    words = (
        f"compared on {sum(CHECKED)} drawn samples with {runtime}: the largest difference is {largest:.2g}"
    )
    return words, largest


_WRITE = {"safetensors": _copy, "torch": _write_torch, "onnx": _write_onnx}

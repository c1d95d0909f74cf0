"""Words for shell completion, read from the methods' source text, because loading the methods would load torch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin  # settings may be of any class

import typer

from pfl_common.app import plugins
from pfl_common.app.config import field_of

_ROOM = Path(__file__).parents[1]


def complete_methods(incomplete: str) -> list[str]:
    """Methods by their files' names."""
    names = [file.stem for file in (_ROOM / "methods").glob("*.py")] + [*plugins.names("method")]
    return sorted(name for name in names if not name.startswith("_") and name.startswith(incomplete))


def complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """For `--set`: the names of the method's settings, each with its equals sign."""
    files = (_ROOM / "learning" / "method.py", _ROOM / "methods" / f"{_method(ctx)}.py")
    names = {name for file in files for name in _fields(file)}
    return sorted(word for name in names if (word := f"{name.removesuffix('_')}=").startswith(incomplete))


def complete_presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """For `--preset`: those of the method."""
    names = _keys(_ROOM / "methods" / f"{_method(ctx)}.py", "PRESETS")
    return sorted(name for name in names if name.startswith(incomplete))


def complete_backbones(incomplete: str) -> list[str]:
    """The names in the catalogue of networks, and of installed packages; torchvision's once its name is typed."""
    names = [*_keys(_ROOM / "models" / "catalogue.py", "_BACKBONES"), *plugins.names("backbone")]
    if incomplete.startswith("torchvision:"):
        names = [f"torchvision:{name}" for name in _torchvision()]
    return sorted(name for name in names if name.startswith(incomplete))


def _torchvision() -> Iterator[str]:
    """The networks that torchvision's source text registers: importing it would take seconds."""
    found = find_spec("torchvision")
    for place in (found.submodule_search_locations or ()) if found else ():
        for file in sorted(Path(place, "models").glob("*.py")):
            for node in _parse(file):
                called = [
                    one.func for one in getattr(node, "decorator_list", ()) if isinstance(one, ast.Call)
                ]
                if any(isinstance(one, ast.Name) and one.id == "register_model" for one in called):
                    yield str(getattr(node, "name", ""))


def among(kind: type[Any], name: str) -> Callable[[str], list[str]]:
    """Completes the words a setting takes."""
    field = field_of(kind, name)
    return complete_from(
        get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
    )


def complete_from(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _method(ctx: typer.Context) -> str:
    return str(ctx.params.get("method") or "dualfed")


def _fields(file: Path) -> Iterator[str]:
    """The annotated names in the settings classes of a file."""
    for node in _parse(file):
        if isinstance(node, ast.ClassDef) and node.name in ("Config", "Settings"):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id


def _keys(file: Path, name: str) -> Iterator[str]:
    """The keys of a dictionary that a file writes out."""
    for node in _parse(file):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            for key in getattr(node.value, "keys", ()):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def _parse(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text()).body if file.is_file() else []

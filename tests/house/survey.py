"""What the house is made of: its files, as version control knows them, and the shape of each."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path, PurePath

from tests.house.skeleton import PACKAGES, TOP

TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "client",
    "common",
    "deploy",
    "proto",
    "pyproject.toml",
    "server",
    "tests",
}
ROOMS = ("proto", "server", "client", "common", "deploy", "tests")
FORBIDDEN_WORDS = {"helper", "helpers", "manager", "managers", "misc", "util", "utils"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 45
LONGEST_ALGORITHM = 120


@cache
def list_files() -> list[PurePath]:
    """Every file that is, or is about to be, in version control; in an unpacked archive, every file."""
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode == 0:
        return [PurePath(name) for name in asked.stdout.split("\0") if name and (TOP / name).exists()]
    return [
        path.relative_to(TOP)
        for path in TOP.rglob("*")
        if path.is_file() and not is_made(path.relative_to(TOP))
    ]


def is_made(path: PurePath) -> bool:
    """Whether a file outside version control was made by a tool."""
    return any(
        part.startswith(".") or part in ("__pycache__", "build", "dist") or part.endswith(".egg-info")
        for part in path.parts
    )


def list_modules() -> list[PurePath]:
    """The Python files we write by hand and ship; an example of somebody else's package is none of them."""
    rooms = set(PACKAGES.values())
    return [
        path
        for path in list_files()
        if path.suffix == ".py"
        and path.parts[0] in rooms
        and not path.stem.endswith("_pb2")
        and path.parts[:2] != ("deploy", "examples")
    ]


def odd_top_level(files: list[PurePath]) -> set[str]:
    """Names at the top that are neither the house's nor dot-files."""
    names = {path.parts[0] for path in files}
    return {name for name in names if name not in TOP_LEVEL and not name.startswith(".")}


def odd_names(files: list[PurePath]) -> set[str]:
    """Files and folders called after nothing they do."""
    return {
        str(path)
        for path in files
        if any(FORBIDDEN_WORDS & set(part.split(".")[0].lower().split("_")) for part in path.parts)
    }


def long_functions(text: str) -> dict[str, int]:
    """Functions past the hard limit, with their lines; the docstring counts, as a reader reads it too."""
    return {
        node.name: size
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    }


def foreign_imports(text: str) -> set[str]:
    """Top-level names of all modules a text imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def read(path: PurePath) -> str:
    """The text of a file of ours."""
    return Path(TOP, path).read_text(encoding="utf-8")


def measure_algorithm(source: str) -> int:
    """Lines of a method's file that do something: without imports, `Config`, presets, sentences, docstrings, comments,
    blank lines and declared types.
    """
    parts = [
        part
        for part in ast.parse(source).body
        if isinstance(part, ast.ClassDef | ast.FunctionDef) and part.name != "Config"
    ]
    said = [node for part in parts for node in ast.walk(part) if _only_says(node)]
    silent = {line for node in said for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    written = {line for part in parts for line in range(part.lineno, (part.end_lineno or 0) + 1)}
    lines = source.splitlines()
    return sum(lines[at - 1].strip()[:1] not in ("", "#") for at in written - silent)


def _only_says(node: ast.AST) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )

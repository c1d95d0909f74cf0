"""Draws the map of the rooms: their folders in layers, from the import graph, and the way of one round through them.

After folders were added or moved: `python -m tests.house.map`, which writes deploy/pictures/map.svg.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

from tests.house import survey
from tests.house.skeleton import PACKAGES, TOP

PICTURE = TOP / "deploy" / "pictures" / "map.svg"

Graph: TypeAlias = Mapping[str, frozenset[str]]
"""By folder of one room, as `pfl_server.run`: the folders of the same room that it imports."""


class Step(NamedTuple):
    """A place on the way of a round, and what happens there."""

    folder: str
    words: str


ROUND = (
    Step("pfl_server.run", "begins the round"),
    Step("pfl_server.decisions", "draws its sites"),
    Step("pfl_server.sites", "places a task with each of them"),
    Step("pfl_client.daemon", "asks for work"),
    Step("pfl_client.connection", "signs the call and sends it"),
    Step("pfl_server.network", "identifies the site"),
    Step("pfl_server.sites", "hands the task out"),
    Step("pfl_server.store", "puts the parcel on the shelf"),
    Step("pfl_server.envelopes", "seals it for the site"),
    Step("pfl_server.network", "sends its frames"),
    Step("pfl_client.connection", "fetches them, resuming if broken off"),
    Step("pfl_client.run_folder", "verifies and opens the parcel"),
    Step("pfl_client.trainer_process", "passes the job to the other process"),
    Step("pfl_client.trainer", "trains, with the method of common"),
    Step("pfl_client.trainer_process", "brings state and update back"),
    Step("pfl_client.run_folder", "commits both, the update sealed"),
    Step("pfl_client.connection", "offers the update and sends it"),
    Step("pfl_server.network", "receives its frames"),
    Step("pfl_server.sites", "verifies it and gives a receipt"),
    Step("pfl_server.store", "spools it; journals the receipt"),
    Step("pfl_server.run", "hears that it has arrived"),
    Step("pfl_server.decisions", "orders the fold, then the close"),
    Step("pfl_server.store", "folds; checkpoint; commit"),
)

WIDTH, MARGIN, LABEL = 980, 20, 150
LANE, PITCH, RADIUS = 24, 34, 10
COLUMNS, LINE = 3, 19
ROOMS = {
    "pfl_client": "client: a site (in each room a folder imports only those below it)",
    "pfl_server": "server: the coordinator",
    "pfl_common": "common: what both know",
    "pfl_deploy": "deploy: whole federations",
}
COLOURS = {"pfl_client": "#0f766e", "pfl_server": "#1d4ed8", "pfl_common": "#6b4b9a", "pfl_deploy": "#57606a"}
STYLE = """text { font: 13px sans-serif; fill: #1f2328 } .room { font-weight: bold } .small { font-size: 12px }
.number { font-size: 11px; font-weight: bold; fill: #ffffff; text-anchor: middle } .middle { text-anchor: middle }
.lane { fill: #f1f4f8 } .way { fill: none; stroke: #9a6700; stroke-width: 2 } .pause { stroke-dasharray: 4 4 }"""


# -- the import graph


@cache
def read_graph(package: str) -> Graph:
    """The folders of a room, each with the folders of the same room that it imports when it is loaded."""
    modules = [path for path in survey.list_modules() if path.parts[1:2] == (package,)]
    names = {folder_of(path) for path in modules} - {package}
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in modules:
        if (own := folder_of(path)) in found:
            found[own] |= set(_imports(ast.parse(survey.read(path)))) & names - {own}
    return {name: frozenset(used) for name, used in found.items()}


def folder_of(path: PurePath) -> str:
    """`server/pfl_server/run/host.py` lies in `pfl_server.run`; a module beside the folders stands for itself."""
    return ".".join(path.with_suffix("").parts[1:3]).removesuffix(".__init__")


def _imports(node: ast.AST) -> Iterator[str]:
    """Names as long as a folder's; what only a type checker imports is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module and not child.level:
            for alias in child.names:
                yield ".".join(f"{child.module}.{alias.name}".split(".")[:2])
        elif isinstance(child, ast.Import):
            yield from (".".join(alias.name.split(".")[:2]) for alias in child.names)
        else:
            yield from _imports(child)


def find_layers(graph: Graph) -> list[list[str]]:
    """From top to bottom: each folder lies above all that it imports, as low as it can."""
    heights: dict[str, int] = {}
    while len(heights) < len(graph):
        ready = [name for name in graph if name not in heights and graph[name] <= heights.keys()]
        if not ready:
            raise ValueError(
                f"folders import each other in a circle: {sorted(graph.keys() - heights.keys())}"
            )
        for name in ready:
            heights[name] = 1 + max((heights[used] for used in graph[name]), default=0)
    order = sorted(graph, key=lambda name: (-heights[name], name))
    return [list(layer) for _, layer in groupby(order, key=heights.__getitem__)]


def reaches(graph: Graph, start: str, end: str) -> bool:
    """Whether one folder imports another, itself or through others."""
    return start == end or any(reaches(graph, used, end) for used in graph[start])


# -- the picture


def draw() -> str:
    """The whole map as SVG, on a ground of its own: readable on a dark page too."""
    places: dict[str, float] = {}
    parts, y = [], float(MARGIN)
    for package in ("pfl_client", "pfl_server"):
        drawn, y = _draw_lanes(package, y, places)
        parts += drawn
    parts += _draw_way(places)
    drawn, y = _draw_legend(y + 6)
    parts += drawn
    bottoms = []
    for package, left in (("pfl_common", MARGIN), ("pfl_deploy", WIDTH // 2 + MARGIN // 2)):
        drawn, bottom = _draw_layers(package, left, y + 12)
        parts += drawn
        bottoms.append(bottom)
    height = round(max(bottoms) + MARGIN)
    ground = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="#d0d7de"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    title = "<title>The rooms, their folders in layers, and the way of one round through them</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", ground, *parts, "</svg>", ""])


def _draw_lanes(package: str, y: float, places: dict[str, float]) -> tuple[list[str], float]:
    """A lane for each folder, upper layers first; `places` gets the middle of each."""
    parts = [_text(MARGIN, y + 14, ROOMS[package], "room")]
    y += 24
    for name in (name for layer in find_layers(read_graph(package)) for name in layer):
        parts.append(
            f'<rect class="lane" x="{MARGIN}" y="{y:g}" width="{WIDTH - 2 * MARGIN}" height="{LANE - 3}" rx="4"/>'
            f'<rect x="{MARGIN}" y="{y:g}" width="4" height="{LANE - 3}" rx="2" fill="{COLOURS[package]}"/>'
        )
        parts.append(_text(MARGIN + 12, y + 15, _label(name), "small"))
        places[name] = y + (LANE - 3) / 2
        y += LANE
    return parts, y + 14


def _draw_way(places: Mapping[str, float]) -> list[str]:
    """The steps from left to right in time, each on its folder's lane."""
    spots = [(MARGIN + LABEL + PITCH * i + PITCH / 2, places[step.folder]) for i, step in enumerate(ROUND)]
    parts = []
    for (here, there), ((x, y), (to_x, to_y)) in zip(pairwise(ROUND), pairwise(spots), strict=True):
        middle = (x + to_x) / 2
        curve = f"M{x:g} {y:g} C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"
        # Nothing is sent here: the site asks by itself.
        pause = " pause" if (here.folder, there.folder) == ("pfl_server.sites", "pfl_client.daemon") else ""
        parts.append(f'<path class="way{pause}" d="{curve}"/>')
    for number, (step, (x, y)) in enumerate(zip(ROUND, spots, strict=True), 1):
        colour = COLOURS[step.folder.split(".")[0]]
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="{colour}"/>')
        parts.append(_text(x, y + 4, str(number), "number"))
    return parts


def _draw_legend(y: float) -> tuple[list[str], float]:
    """What happens at each step, in columns."""
    lines = -(-len(ROUND) // COLUMNS)
    width = (WIDTH - 2 * MARGIN) / COLUMNS
    parts = []
    for i, step in enumerate(ROUND):
        x, line = MARGIN + width * (i // lines), y + LINE * (i % lines) + 14
        own = f'<tspan class="room">{step.folder.split(".")[1]}</tspan>'
        words = f"{i + 1}  {own} {escape(step.words)}"
        parts.append(f'<text class="small" x="{x:g}" y="{line:g}">{words}</text>')
    return parts, y + LINE * lines + 8


def _draw_layers(package: str, left: float, y: float) -> tuple[list[str], float]:
    """The folders of a room that the round does not stop at, as boxes: a row for each layer."""
    parts, width = [_text(left, y + 14, ROOMS[package], "room")], (WIDTH - 3 * MARGIN) / 2
    y += 24
    for layer in find_layers(read_graph(package)):
        size = width / len(layer)
        for i, name in enumerate(layer):
            x = left + size * i
            parts.append(
                f'<rect class="lane" x="{x:g}" y="{y:g}" width="{size - 4:g}" height="{LANE - 3}" rx="4"'
                f' stroke="{COLOURS[package]}"/>'
            )
            parts.append(_text(x + size / 2 - 2, y + 15, _label(name), "small middle"))
        y += LANE
    return parts, y


def _label(name: str) -> str:
    own = name.split(".")[1]
    return (
        f"{own}/" if (TOP / PACKAGES[name.split(".")[0]] / name.replace(".", "/")).is_dir() else f"{own}.py"
    )


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")

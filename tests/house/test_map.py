"""The map of the rooms shows the code as it is."""

from itertools import pairwise

import pytest

from tests.house.map import PICTURE, ROOMS, ROUND, draw, find_layers, reaches, read_graph


@pytest.mark.parametrize("package", ROOMS)
def test_a_folder_lies_above_all_that_it_imports(package: str) -> None:
    """A reader of a room from top to bottom meets nothing that a lower folder imports."""
    graph = read_graph(package)
    height = {name: -i for i, layer in enumerate(find_layers(graph)) for name in layer}
    assert set(graph) == set(height)
    assert [] == [(name, used) for name in graph for used in graph[name] if height[used] >= height[name]]


def test_a_circle_is_seen() -> None:
    """Folders that import each other have no layers."""
    with pytest.raises(ValueError, match=r"in a circle: \['a', 'b'\]"):
        find_layers({"a": frozenset({"b"}), "b": frozenset({"a"}), "c": frozenset()})


def test_the_way_of_a_round_follows_imports() -> None:
    """Within a room each step lies above or below the one before; rooms meet at the line, and where a site asks."""
    doors = {
        ("pfl_server.sites", "pfl_client.daemon"),
        ("pfl_client.connection", "pfl_server.network"),
        ("pfl_server.network", "pfl_client.connection"),
    }
    for before, after in pairwise(step.folder for step in ROUND):
        package = before.split(".")[0]
        if package == after.split(".")[0]:
            graph = read_graph(package)
            assert reaches(graph, before, after) or reaches(graph, after, before), (before, after)
        else:
            assert (before, after) in doors


def test_the_picture_is_drawn_from_the_code() -> None:
    """A folder that was added or moved is on the map: `python -m tests.house.map` draws it anew."""
    assert draw() == PICTURE.read_text(encoding="utf-8")

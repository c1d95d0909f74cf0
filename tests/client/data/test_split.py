"""The division we make for a site that has none: fixed per site, a quarter of each class, stable."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pfl_client import data
from pfl_client.data.picture import Picture
from pfl_client.data.split import divide
from pfl_client.trainer_process.api import DataFolder
from pfl_common.spec.run import Model, RunSpec


def files(label: str, count: int) -> list[Picture]:
    """Files of one class."""
    names = [f"{n:04d}.png" for n in range(count)]
    return [Picture(f"file {n} of {label}", label, Path(label, name), name) for n, name in enumerate(names)]


def test_about_a_quarter_of_each_class_is_held_out() -> None:
    """Each class gives its share, the small one as well as the large."""
    _, test = divide(files("cat", 400) + files("dog", 40), "site-3")
    share = {label: sum(one.label == label for one in test) for label in ("cat", "dog")}
    assert 70 < share["cat"] < 130
    assert 3 < share["dog"] < 18


def test_a_new_file_moves_no_other() -> None:
    """What was held out stays held out when images are added."""
    before = set(divide(files("cat", 100), "site-3")[1])
    after = set(divide(files("cat", 150), "site-3")[1])
    assert before == after & set(files("cat", 100))


def test_another_site_divides_otherwise() -> None:
    """Two sites with equal file names do not hold out the same numbers."""
    assert divide(files("cat", 100), "site-3") != divide(files("cat", 100), "site-4")


@given(st.integers(1, 12), st.text("abc", min_size=1, max_size=4))
def test_a_small_class_is_on_both_sides(count: int, site: str) -> None:
    """From two files on a class is trained and tested; a single file is trained on."""
    train, test = divide(files("cat", count), site)
    assert train
    assert bool(test) == (count > 1)
    assert sorted(train + test, key=lambda one: one.name) == files("cat", count)


def test_the_division_is_not_the_runs(tmp_path: Path) -> None:
    """Two runs of other seeds see the same test images, or one would train on the other's."""
    for n in range(20):
        path = tmp_path / "cat" / f"{n}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (2, 2), n).save(path)

    def held_out(seed: int) -> list[int]:
        run = RunSpec(
            "r", "fedavg", {}, Model("mlp", (1, 2, 2), ("cat", "dog")), rounds=1, seed=seed, roster=()
        )
        return data.load(DataFolder(tmp_path, "site-3"), run).test.x[:, 0, 0, 0].tolist()

    assert held_out(1)
    assert held_out(1) == held_out(2)
    assert "the same files" in data.describe(DataFolder(tmp_path, "site-3")).warnings[0]

"""The division we make for a site that has none: fixed per site, a quarter of each class, stable."""

from __future__ import annotations

from dataclasses import replace
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


def grouped(label: str, count: int, *, first: int = 0, each: int = 3) -> list[Picture]:
    """Files of one class, of patients with some files each."""
    return [
        replace(one, group=f"p{first + number // each}") for number, one in enumerate(files(label, count))
    ]


def test_a_group_is_in_one_part() -> None:
    """Also where a patient has pictures of two classes; about a quarter of the patients is held out."""
    pictures = [*grouped("cat", 240), *grouped("dog", 240, first=70)]
    train, test = divide(pictures, "site-3")
    assert len(pictures) == len(train) + len(test)
    patients = [{one.group for one in part} for part in (train, test)]
    assert not patients[0] & patients[1]
    assert 20 < len(patients[1]) < 60


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 6)), min_size=1, max_size=30),
    st.text("ab", max_size=3),
)
def test_every_class_is_trained_on(drawn: list[tuple[str, int]], site: str) -> None:
    """Whatever patients there are: no class is in the test alone, and each class that can be tested is."""
    pictures = [
        Picture(f"{place}", label, Path(f"{place}"), f"{place}", f"p{group}")
        for place, (label, group) in enumerate(drawn)
    ]
    train, test = divide(pictures, site)
    assert {one.label for one in pictures} == {one.label for one in train}
    assert not {one.group for one in train} & {one.group for one in test}
    for label in {one.label for one in train} - {one.label for one in test}:
        own = {one.group for one in pictures if one.label == label}
        assert all(must_train(group, pictures, test) for group in own)


def must_train(group: str, pictures: list[Picture], test: list[Picture]) -> bool:
    """Whether taking this group too into the test would leave a class without training."""
    held = {one.group for one in test} | {group}
    return any(
        {one.group for one in pictures if one.label == label} <= held
        for label in {one.label for one in pictures}
    )


def test_a_new_patient_moves_no_other() -> None:
    """Their parts follow from their names."""
    before = {one.group for one in divide(grouped("cat", 300), "site-3")[1]}
    after = {one.group for one in divide(grouped("cat", 450), "site-3")[1]}
    assert before == after & {one.group for one in grouped("cat", 300)}

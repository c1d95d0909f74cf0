"""Typefaces: a fixed list, found whole or named in an error, and never on both sides."""

from __future__ import annotations

import pytest

from pfl_common.errors import DataError
from pfl_deploy.datasets import fonts
from pfl_deploy.datasets.fonts import Family, find_faces

CASTS = {"synth": fonts.SYNTH, "street": fonts.STREET, "hand": fonts.HAND}


@pytest.mark.parametrize("name", CASTS)
def test_no_family_draws_both_training_and_shifted_pictures(name):
    """Not one file in common, and no package but matplotlib, which has several families."""
    train, shifted = (
        {file for family in side for file in family.files}
        for side in (CASTS[name].train, CASTS[name].shifted)
    )
    assert not train & shifted
    packages = [{family.package for family in side} for side in (CASTS[name].train, CASTS[name].shifted)]
    assert packages[0] & packages[1] <= {"matplotlib"}


def test_the_faces_of_synth_come_with_matplotlib():
    """No folder of the system is needed."""
    faces = find_faces(fonts.SYNTH.train, [])
    assert "DejaVuSans.ttf" == faces[0].name
    assert all(face.is_file() for face in faces)


def test_faces_keep_the_order_of_the_list_wherever_they_lie(tmp_path):
    """The order decides which picture gets which face, so it must not be the disk's."""
    families = [Family("one", ("z.ttf", "a.ttf")), Family("two", ("m.ttf",))]
    for place, name in (("x/deep", "a.ttf"), ("", "m.ttf"), ("y", "z.ttf")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / name).touch()
    assert ["z.ttf", "a.ttf", "m.ttf"] == [face.name for face in find_faces(families, [tmp_path])]


def test_of_two_files_of_one_name_the_same_is_taken_every_time(tmp_path):
    """The earlier folder wins; inside it the path that sorts first."""
    for place in ("first/b", "first/a", "second"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "f.ttf").touch()
    family, absent, first, second = (
        Family("one", ("f.ttf",)),
        *(tmp_path / n for n in ("absent", "first", "second")),
    )
    assert [first / "a" / "f.ttf"] == find_faces([family], [absent, first, second])
    assert [second / "f.ttf"] == find_faces([family], [second, first])


@pytest.mark.parametrize("name", ["street", "hand"])
def test_missing_fonts_are_an_error_that_names_their_packages(tmp_path, name):
    """Every package that is needed, in a command that can be pasted."""
    families = CASTS[name].train
    with pytest.raises(DataError) as error:
        find_faces(families, [tmp_path])
    assert "apt install " + " ".join(family.package for family in families) in str(error.value)


def test_one_missing_font_is_an_error_too(tmp_path):
    """Drawing without it would give other pictures than on the next machine."""
    (tmp_path / "a.ttf").touch()
    with pytest.raises(DataError, match=r"(?s)1 of 2 fonts are not installed: b.ttf.*apt install two\)"):
        find_faces([Family("one", ("a.ttf",)), Family("two", ("b.ttf",))], [tmp_path])

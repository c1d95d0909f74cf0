"""Names of sites: what is allowed, and what becomes of a folder's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pfl_common.identity import IdentityError, cards, check_site_name, keep_name, site_cards, site_name

TEN_THOUSAND = 10_000


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("hospital_a", "hospital_a"),
        ("Hospital A", "hospital_a"),
        ("clinic.north-2", "clinic_north-2"),
        ("_data", "data"),
        ("7", "7"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_folder_gives_its_site_a_name(tmp_path: Path, folder: str, name: str) -> None:
    """The folder's name, lower-cased, with illegal characters replaced."""
    assert name == site_name(tmp_path / folder)


def test_a_folder_given_as_a_dot_still_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--data .` names the site after the folder one stands in."""
    folder = tmp_path / "hospital_b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert "hospital_b" == site_name(Path("."))


def test_a_link_keeps_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hospital_a` that leads to `disk7/x` is hospital_a; its place is that of the link, whole and without links."""
    (tmp_path / "disk7" / "x").mkdir(parents=True)
    (tmp_path / "here").symlink_to(tmp_path / "disk7")
    (tmp_path / "hospital_a").symlink_to(tmp_path / "disk7" / "x")
    monkeypatch.chdir(tmp_path)
    assert "hospital_a" == site_name(Path("./hospital_a"))
    assert tmp_path / "hospital_a" == keep_name(Path("hospital_a"))
    assert tmp_path / "disk7" / "x" == keep_name(Path("here/x")) == keep_name(Path("hospital_a/../x"))
    assert tmp_path == keep_name(Path("hospital_b/.."))


@pytest.mark.parametrize("folder", ["病院", "/", "Coordinator"])
def test_a_folder_without_a_usable_name_asks_for_one(folder: str) -> None:
    """A name nobody could type or that is reserved is an error which names the option."""
    with pytest.raises(IdentityError) as caught:
        site_name(Path("/somewhere") / folder)
    assert "--name" in caught.value.advice


@pytest.mark.parametrize(
    "name", ["", "-a", "_a", "A", "a b", "a/b", "..", "a\n", "a" * 64, "é", "operator", "coordinator"]
)
def test_names_outside_the_rule_are_refused(name: str) -> None:
    """Whatever could confuse a path, a certificate or a reader is no name."""
    with pytest.raises(IdentityError) as caught:
        check_site_name(name)
    assert "pfl invite" in caught.value.advice, "read by an operator too"
    assert "--name" in caught.value.advice


@given(st.text(min_size=1, max_size=90))
def test_every_name_made_from_a_folder_is_a_legal_name(text: str) -> None:
    """Whatever the folder is called, its site gets a legal name or a clear error."""
    assume("\0" not in text and "/" not in text)
    assume(not any("\ud800" <= letter <= "\udfff" for letter in text))
    try:
        name = site_name(Path("/nowhere/at/all") / text)
    except IdentityError:
        return
    assert name == check_site_name(name)


@pytest.mark.parametrize("read", [cards._read_verifier, cards._read_recipient, lambda raw: _place(raw)])
def test_what_is_read_of_ten_thousand_sites_is_read_once(read: Callable[[bytes], object]) -> None:
    """They call in turn: with room for fewer, each would be forgotten just before its next call."""
    keys = [number.to_bytes(32) for number in range(TEN_THOUSAND)]
    first = [read(key) for key in keys]
    assert all(again is one for again, one in zip(map(read, keys), first, strict=True))


def _place(raw: bytes) -> Path:
    return site_cards._path_of(Path("cards"), raw.hex())

"""Class names as hashes: recognised by who knows the name, and by nobody else."""

from __future__ import annotations

from pfl_common.spec.hashed_names import hash_name, is_hashed, recognise


def test_a_hash_is_of_the_name_alone() -> None:
    """The same at every site; 39 letters, whatever the name's length."""
    assert hash_name("melanoma") == hash_name("melanoma") != hash_name("Melanoma")
    assert {39} == {len(hash_name(name)) for name in ("", "a", "x" * 900, "\udcff")}
    assert is_hashed(hash_name("a"))
    assert not is_hashed("sha256:a")


def test_known_names_are_recognised() -> None:
    """In their places; what is unknown stays a hash and is counted."""
    told = (hash_name("dog"), "cat", hash_name("patient 7"))
    assert (("dog", "cat", hash_name("patient 7")), 1) == recognise(told, ("cat", "dog", "owl"))

"""A buffer that is used again and again."""

from __future__ import annotations

from pfl_client.trainer_process.buffers import Pool


def test_the_same_memory_is_handed_out_again() -> None:
    """A smaller piece is the beginning of the larger one, with what was in it."""
    pool = Pool()
    pool.take(4)[:] = b"abcd"
    assert (b"ab", b"abcd") == (bytes(pool.take(2)), bytes(pool.take(4)))


def test_more_is_new_memory() -> None:
    """The view that is still held keeps its own."""
    pool = Pool()
    held = pool.take(2)
    held[:] = b"ab"
    assert (bytes(3), b"ab") == (bytes(pool.take(3)), bytes(held))


def test_what_was_given_back_is_gone() -> None:
    """Also while a view of it is held."""
    pool = Pool()
    held = pool.take(2)
    held[:] = b"ab"
    pool.drop()
    assert (bytes(2), b"ab") == (bytes(pool.take(2)), bytes(held))

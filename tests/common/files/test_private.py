"""Files that only one user may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pfl_common.errors import IdentityError
from pfl_common.files import private


def mode_of(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_private(tmp_path: Path) -> None:
    """Whatever the user's mask allows; nothing else lies beside it, and the old content is gone."""
    folder = private.make_folder(tmp_path / "new" / "keys")
    before = os.umask(0)
    try:
        private.create(folder / "made", b"1")
        private.write(folder / "written", b"old")
        private.write(folder / "written", b"new")
    finally:
        os.umask(before)
    assert (0o700, 0o600, 0o600) == (mode_of(folder), mode_of(folder / "made"), mode_of(folder / "written"))
    assert ["made", "written"] == sorted(os.listdir(folder))
    assert b"new" == private.read(folder / "written")


def test_a_file_is_made_once(tmp_path: Path) -> None:
    """The first content stays."""
    private.create(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError):
        private.create(tmp_path / "key", b"second")
    assert b"first" == private.read(tmp_path / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601])
def test_a_file_that_others_reach(tmp_path: Path, mode: int) -> None:
    """Any right of the group or of others is one too many; the error has the command that takes it away."""
    private.create(tmp_path / "key", b"secret")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:04o}") as refused:
        private.read(tmp_path / "key")
    assert "chmod 600" in refused.value.advice


def test_a_folder_that_others_enter(tmp_path: Path) -> None:
    """One that was there before is looked at as well."""
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "keys").chmod(0o750)
    with pytest.raises(IdentityError, match="mode 0750"):
        private.make_folder(tmp_path / "keys")
    (tmp_path / "file").touch()
    with pytest.raises(IdentityError, match="is not a folder"):
        private.make_folder(tmp_path / "file")


def test_neither_link_nor_pipe(tmp_path: Path) -> None:
    """A link may lead to what somebody else writes; a pipe would wait for ever."""
    private.create(tmp_path / "key", b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "key")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "way").symlink_to(tmp_path / "keys")
    with pytest.raises(IdentityError, match="is a link"):
        private.read(tmp_path / "link")
    with pytest.raises(IdentityError, match="is not a file"):
        private.read(tmp_path / "pipe")
    with pytest.raises(IdentityError, match="is not a folder"):
        private.check_folder(tmp_path / "way")


def test_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their owner could change them."""
    private.create(tmp_path / "key", b"secret")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(IdentityError, match=f"belongs to user {owner}"):
        private.read(tmp_path / "key")


def test_a_mebibyte_and_no_more(tmp_path: Path) -> None:
    """Somebody else's large file is not read to its end."""
    private.create(tmp_path / "key", b"\0" * (1 << 20))
    assert 1 << 20 == len(private.read(tmp_path / "key"))
    private.write(tmp_path / "key", b"\0" * ((1 << 20) + 1))
    with pytest.raises(IdentityError, match="larger than 1048576 bytes"):
        private.read(tmp_path / "key")


def test_a_write_that_fails_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing half written beside it."""
    private.write(tmp_path / "key", b"old")

    def fail(*words: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no"):
            private.write(tmp_path / "key", b"new")
    assert (["key"], b"old") == (os.listdir(tmp_path), private.read(tmp_path / "key"))

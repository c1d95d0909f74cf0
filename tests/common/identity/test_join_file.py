"""The file that carries an invitation: whole, it is read back; anything else has its own clear end."""

from __future__ import annotations

import hashlib
import json
import stat
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.identity import IdentityError, Invitation, new_secret, read_join_file, write_join_file

DAY = timedelta(days=1)


@pytest.fixture
def join_file(tmp_path: Path, invitation: Invitation) -> Path:
    """hospital_a.join as the operator's command writes it."""
    path = tmp_path / "hospital_a.join"
    write_join_file(invitation, path)
    return path


def test_a_join_file_comes_back_whole(join_file: Path, invitation: Invitation, now: datetime) -> None:
    """Reading gives what was written, and the file is for its owner only."""
    assert invitation == read_join_file(join_file, now=now)
    assert 0o600 == stat.S_IMODE(join_file.stat().st_mode)


def test_an_invitation_is_told_from_others_without_its_secret(
    join_file: Path, invitation: Invitation, now: datetime
) -> None:
    """The file's is the one that was written; what is noted of it lets nobody in."""
    other = replace(invitation, secret=new_secret())
    assert invitation.id == read_join_file(join_file, now=now).id != other.id
    assert 64 == len(invitation.id)
    for hidden in (invitation.secret, hashlib.sha256(invitation.secret).digest()):
        assert hidden.hex() not in invitation.id


def test_windows_line_ends_do_no_harm(join_file: Path, invitation: Invitation, now: datetime) -> None:
    """A mail program that changes line ends does not change the invitation."""
    join_file.write_bytes(join_file.read_bytes().replace(b"\n", b"\r\n"))
    assert invitation == read_join_file(join_file, now=now)


def test_an_old_join_file_is_not_overwritten(join_file: Path, invitation: Invitation) -> None:
    """Unless asked for, what lies there stays."""
    before = join_file.read_bytes()
    with pytest.raises(IdentityError, match="exists already"):
        write_join_file(replace(invitation, secret=new_secret()), join_file)
    assert before == join_file.read_bytes()
    write_join_file(replace(invitation, secret=new_secret()), join_file, replace=True)
    assert before != join_file.read_bytes()


def test_a_missing_join_file(tmp_path: Path, now: datetime) -> None:
    """No file, or a folder in its place, is said as such."""
    for path in (tmp_path / "no.join", tmp_path):
        with pytest.raises(IdentityError, match="no file"):
            read_join_file(path, now=now)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"[1]", b"{}", b'{"format": 3}', b"\xff\xfe", b"[" * 70_000]
)
def test_a_file_that_is_no_join_file(tmp_path: Path, now: datetime, content: bytes) -> None:
    """Any other file is told apart from a damaged one."""
    path = tmp_path / "other.join"
    path.write_bytes(content)
    with pytest.raises(IdentityError, match="not a join file"):
        read_join_file(path, now=now)


def test_a_damaged_join_file(join_file: Path, now: datetime) -> None:
    """Cut anywhere or with one character changed, it says damaged and does not show the secret."""
    whole = join_file.read_bytes()
    secret = json.loads(whole)["secret"]
    flipped = whole.replace(secret.encode(), (secret[:-1] + ("0" if secret[-1] != "0" else "1")).encode())
    spoiled = whole.replace(secret.encode(), b"not hexadecimal")
    for content in (*(whole[:size] for size in range(60, len(whole) - 2, 97)), flipped, spoiled):
        join_file.write_bytes(content)
        with pytest.raises(IdentityError, match="is damaged") as caught:
            read_join_file(join_file, now=now)
        assert secret[:16] not in str(caught.value)


def test_a_join_file_put_together_from_two_federations(
    tmp_path: Path, invitation: Invitation, now: datetime
) -> None:
    """Id and CA certificate must belong together."""
    path = tmp_path / "mixed.join"
    write_join_file(replace(invitation, federation_id="0" * 16), path)
    with pytest.raises(IdentityError, match="another federation"):
        read_join_file(path, now=now)


def test_an_expired_join_file(join_file: Path, now: datetime) -> None:
    """The site's engineer hears it before anything is sent."""
    with pytest.raises(IdentityError, match="expired on 2030-05-24 12:00 UTC") as caught:
        read_join_file(join_file, now=now + 8 * DAY)
    assert "pfl invite hospital_a --again" in caught.value.advice

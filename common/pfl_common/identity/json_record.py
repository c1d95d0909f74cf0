"""Reads small JSON files field by field; a missing field or a wrong type is an error that names the field."""

import json
from datetime import UTC, datetime


class Unreadable(ValueError):
    """A record does not hold what it should; the caller adds the file and the advice."""


class Record:
    """The fields of one JSON object, each read by name and type."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields

    @classmethod
    def parse(cls, content: bytes) -> "Record":
        """Read one JSON object."""
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            raise Unreadable("no JSON") from None
        if not isinstance(fields, dict):
            raise Unreadable("no JSON object")
        return cls(fields)

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value:
            raise Unreadable(f"no text '{name}'")
        return value

    def number(self, name: str) -> int:
        """A whole number, zero or more."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Unreadable(f"no number '{name}'")
        return value

    def secret(self, name: str) -> bytes:
        """Bytes written as hexadecimal digits."""
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            # The message of the error beneath would carry the secret's text.
            raise Unreadable(f"no hexadecimal digits in '{name}'") from None

    def time(self, name: str) -> datetime:
        """A moment, with its time zone."""
        try:
            moment = datetime.fromisoformat(self.text(name))
        except ValueError:
            raise Unreadable(f"no time '{name}'") from None
        if moment.tzinfo is None:
            raise Unreadable(f"no time zone in '{name}'")
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            raise Unreadable(f"a time beyond all calendars in '{name}'") from None


def dump(fields: dict[str, object]) -> bytes:
    """Write one JSON object so that a person can read it."""
    return (json.dumps(fields, indent=2, ensure_ascii=True) + "\n").encode()


def written(moment: datetime) -> str:
    """A moment as text, in whole seconds of universal time."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat()

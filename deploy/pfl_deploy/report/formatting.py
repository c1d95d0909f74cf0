"""Formats shares, bytes and times for people."""

from __future__ import annotations

from datetime import UTC, datetime


def percent(value: float, digits: int = 1) -> str:
    """0.8725 is 87.3 %."""
    return f"{100 * value:.{digits}f} %"


def points(difference: float, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.{digits}f}"


def size(count: float) -> str:
    """Bytes in the unit that fits, by thousands."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def short_size(count: float) -> str:
    """Bytes for an axis, on which all places are round."""
    number, unit = size(count).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def duration(seconds: float) -> str:
    """Two units at the most."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def moment(seconds: float) -> str:
    """A Unix time in UTC: readers of the page may be in another time zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def counted(count: int, one: str, many: str = "") -> str:
    """1 site, 2 sites."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"

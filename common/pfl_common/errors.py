"""All errors of this product, each with words that a person can act on.

PflError
├── UserError          a person can mend it; programs print it without a traceback and exit with its code
│   ├── SettingError   an option, a setting, a configuration file
│   ├── DataError      the data folder or what lies in it
│   ├── TooFewSamples  a site has too few training samples for what the method does
│   ├── StateError     the state folder: of another run, damaged, in use, full
│   ├── Distrusted     the other side said what no program of ours would say
│   ├── IdentityError  a name, a key, a certificate, an invitation, or a private file
│   └── Unavailable    what is needed is not there now and may come by itself: worth another try
├── Refused            a peer sent something we do not take; carries a code from a fixed list
└── RunFailed          a run came to an end it should not have come to
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pfl_common import exit_codes


class PflError(Exception):
    """The root of the tree: any error this product raises on purpose."""


class UserError(PflError):
    """An error that says what was seen, what was expected and what to do."""

    exit_code = exit_codes.WRONG_WORDS

    def __init__(self, seen: str, *, expected: str = "", advice: str = "", file: str = "") -> None:
        """`file` names a data file: it is shown on this machine's terminal and nowhere else."""
        self.seen, self.expected, self.advice, self.file = seen, expected, advice, file
        super().__init__(seen)

    def __str__(self) -> str:
        parts = [self.seen]
        if self.expected:
            parts.append(f"expected: {self.expected}")
        if self.advice:
            parts.append(f"what to do: {self.advice}")
        return "\n  ".join(parts)


class SettingError(UserError):
    """An option or setting that does not exist, or has a value it cannot have."""


class DataError(UserError):
    """The data folder cannot be used as it is."""

    exit_code = exit_codes.DATA


class TooFewSamples(DataError):
    """A method cannot train at this site: it has too few samples. The site declines the round and stays in the run."""


class StateError(UserError):
    """The state folder cannot be used as it is."""

    exit_code = exit_codes.STATE_FOLDER


class Distrusted(UserError):
    """The other side says what no program of ours would say: of another release, damaged, or not to be trusted."""


class IdentityError(UserError):
    """A name, key or certificate is wrong, or a private file can be read by others."""


class Unavailable(UserError):
    """Something needed is missing for now, most often a coordinator; the same command may succeed later."""

    exit_code = exit_codes.TRY_AGAIN


class Refused(PflError):
    """A peer's message is not accepted; the code is counted, the words are logged."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(f"{code}: {words}")


class RunFailed(PflError):
    """The run ended before its last round; the reason is in the text."""

    exit_code = exit_codes.RUN_FAILED


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A phrase naming the known word closest to a wrong one, and all of them."""
    words = sorted(known)
    close = difflib.get_close_matches(wrong, words, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(words) or 'none'}"

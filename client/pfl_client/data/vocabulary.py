"""Translates a site's word numbers into the run's: 0 is padding, 1 is an unknown word.

The words are a JSON list in `vocabulary.json`, or an array of strings `vocabulary` in `train.npz`. The first word of
the list has the number 2; a list that itself begins with "<pad>" and "<unk>" is read as it is, from 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from pfl_client.data import array_bounds
from pfl_client.data.declaration import Declared, Hashed
from pfl_client.data.json_file import read_json
from pfl_client.data.layout import ArrayFiles
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import FIRST_WORD, PADDING, UNKNOWN, Model, Numbering
from pfl_common.spec.word_list import settle_words

log = structlog.get_logger(__name__)

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Vocabulary:
    """A site's own numbering of words."""

    numbering: Numbering
    tokens: int
    """How many numbers its texts may have."""
    words: tuple[str, ...] = ()
    """From the number 2 on; empty if only the numbers are known."""
    buckets: int = 0
    """With hashed words: how many numbers the run has."""


def read(found: ArrayFiles, declared: Declared) -> Vocabulary | None:
    """The folder's own; None where it says nothing of words."""
    words = _find_words(found)
    said = declared.vocabulary
    if isinstance(said, int) and words is not None:
        raise DataError(
            f"data.json says {said} for 'vocabulary', and the folder has a list of {len(words)} words",
            expected="one of the two",
            advice="remove 'vocabulary' from data.json to have the list agreed with other sites, or the list",
        )
    if isinstance(said, int):
        return Vocabulary("numbers", said)
    if words is None and (said is not None or declared.tell_vocabulary is not None):
        raise _no_words("data.json speaks of a vocabulary, and the folder has no list of words")
    if words is None:
        return None
    if declared.kind not in (None, "tokens"):
        raise DataError(
            f"data.json says {declared.kind!r} for 'kind', and the folder has a list of words",
            expected="'tokens', or no list of words",
            advice="correct data.json, or take vocabulary.json away",
        )
    return _number(words, declared, said)


def _number(words: tuple[str, ...], declared: Declared, said: Hashed | None) -> Vocabulary:
    tokens = len(words) + FIRST_WORD
    if said is None:
        numbering: Numbering = "withheld" if declared.tell_vocabulary is False else "words"
        return Vocabulary(numbering, tokens, words)
    if declared.tell_vocabulary is not None:
        raise DataError(
            "data.json says 'tell_vocabulary' of words that are hashed",
            expected="one of the two: of hashed words nothing is told",
            advice="remove 'tell_vocabulary'",
        )
    return Vocabulary("hashed", tokens, words, said.hashed)


def check(vocabulary: Vocabulary | None, parts: Mapping[str, npt.NDArray[np.generic]]) -> Vocabulary:
    """Refuse texts without a vocabulary, or with a number that it does not have."""
    if vocabulary is None:
        raise _no_words("the texts are numbers of words, and nothing says of which")
    for part, x in parts.items():
        highest = int(x.max()) if x.size else 0
        if highest >= vocabulary.tokens:
            what = "data.json" if vocabulary.numbering == "numbers" else "the vocabulary"
            raise DataError(
                f"{part}.npz has the number {highest}, {what} has {vocabulary.tokens} numbers",
                expected=f"numbers 0 to {vocabulary.tokens - 1}; 0 is padding, 1 an unknown word",
                advice="check how the texts were numbered: the first word of the list has the number 2",
            )
    return vocabulary


def _no_words(seen: str) -> DataError:
    return DataError(
        seen,
        expected='a list of words in vocabulary.json, or in data.json how many numbers there are: "vocabulary": 32000',
        advice="write vocabulary.json, a JSON list of words, the first of which has the number 2",
    )


def tell(vocabulary: Vocabulary) -> str:
    """What a site tells of its words, described for its own log."""
    return {
        "words": f"all {len(vocabulary.words)} words of the vocabulary, for the run's list that each site gets; with "
        '"tell_vocabulary": false in data.json, or {"vocabulary": {"hashed": 32000}}, none is told',
        "withheld": "no word of the vocabulary: the coordinator's --vocabulary has to name the run's list",
        "hashed": f"no word of the vocabulary, only that words are hashed to {vocabulary.buckets} numbers",
        "numbers": f"no word, only that texts have {vocabulary.tokens} numbers",
    }[vocabulary.numbering]


def fit(x: Numbers, vocabulary: Vocabulary, folder: DataFolder, *, model: Model, part: str) -> Numbers:
    """Texts with the run's numbers and of the run's length: shorter ones padded, longer ones cut."""
    _check_numbering(vocabulary, folder, model)
    fitted = np.full((len(x), model.shape[0]), PADDING, np.int32)
    kept = min(x.shape[1], model.shape[0])
    numbers = _translate(vocabulary, model)[x]
    fitted[:, :kept] = numbers[:, :kept]
    if cut := int((x[:, kept:] != PADDING).any(1).sum()):
        log.warning(
            "texts are cut at the run's length", site=folder.site, part=part, texts=cut, words=model.shape[0]
        )
    _tell_unknown(x[:, :kept], fitted[:, :kept], folder, part=part)
    return fitted


def _tell_unknown(own: Numbers, fitted: Numbers, folder: DataFolder, *, part: str) -> None:
    words = int((own != PADDING).sum())
    lost = int(((fitted == UNKNOWN) & (own != UNKNOWN)).sum())
    if lost:
        log.warning(
            "words that the run's list does not have become unknown",
            site=folder.site,
            part=part,
            share=f"{lost / words:.1%}",
        )


def _translate(vocabulary: Vocabulary, model: Model) -> Numbers:
    """The run's number for each of the site's own."""
    if vocabulary.numbering == "numbers":
        return np.arange(vocabulary.tokens, dtype=np.int32)
    if vocabulary.numbering == "hashed":
        numbers = [hash_word(word, model.tokens) for word in vocabulary.words]
    else:
        known = {word: place for place, word in enumerate(model.words, start=FIRST_WORD)}
        numbers = [known.get(word, UNKNOWN) for word in vocabulary.words]
    return np.array([PADDING, UNKNOWN, *numbers], np.int32)


def hash_word(word: str, tokens: int) -> int:
    """The number of a word at every site with `tokens` numbers; padding and unknown words keep theirs."""
    return FIRST_WORD + hash_into(word, tokens - FIRST_WORD)


def hash_into(name: str, places: int) -> int:
    """The place of a name, at every site alike, among so many."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % places


def _check_numbering(vocabulary: Vocabulary, folder: DataFolder, model: Model) -> None:
    own = "words" if vocabulary.numbering == "withheld" else vocabulary.numbering
    numbers = {"hashed": vocabulary.buckets, "numbers": vocabulary.tokens}.get(own, model.tokens)
    if (own, numbers) != (model.numbering, model.tokens):
        raise DataError(
            f"{folder.site} numbers words by {own} ({numbers}), the run by {model.numbering} ({model.tokens})",
            expected="words numbered as in the run",
            advice='check vocabulary.json and "vocabulary" in data.json, or have a new run started',
        )


def _find_words(found: ArrayFiles) -> tuple[str, ...] | None:
    inside = _words_inside(found.parts["train"])
    if found.vocabulary is None:
        return None if inside is None else _settle(inside)
    if inside is not None:
        raise DataError(
            "the folder has vocabulary.json, and train.npz has a list of words too",
            expected="one of the two",
            advice="remove one of them",
        )
    try:
        words = read_json(found.vocabulary)
    except (OSError, ValueError):
        words = None
    return _settle(words)


def _words_inside(train: Path) -> list[str] | None:
    """An array of strings beside x and y; what is wrong with the file itself is told by who reads those."""
    try:
        array_bounds.check_archive(train)
        # A pickled object inside would run its writer's code.
        with np.load(train, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile) or "vocabulary" not in file.files:
                return None
            words = file["vocabulary"]
    except Exception:  # whatever a broken archive raises, `arrays` reads it again and says so
        return None
    return [str(word) for word in words] if words.dtype.kind == "U" and words.ndim == 1 else []


def _settle(words: object) -> tuple[str, ...]:
    """Words in one form, or what is wrong with their list."""
    try:
        return settle_words(words)
    except ValueError as error:
        raise DataError(
            f"the vocabulary is {error}",
            expected='each word once, for example ["fever", "cough"], of which the first has the number 2',
            advice="write the list again, as JSON in UTF-8; 0 is padding, 1 an unknown word",
        ) from None

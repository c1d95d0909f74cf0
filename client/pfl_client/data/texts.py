"""Describes and numbers texts from files of rows: what a site tells of its words, and words as the run numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import structlog
import torch

from pfl_client.data.declaration import FILE, Declared, Hashed
from pfl_client.data.labelled_rows import LabelledRows
from pfl_client.data.layout import PARTS
from pfl_client.data.row_kind import TEXT
from pfl_client.data.text_cutting import cut_words
from pfl_client.data.vocabulary import Numbers, hash_word
from pfl_client.data.warnings import number_classes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.learning.method import Samples
from pfl_common.spec.data_description import LONGEST_TEXT
from pfl_common.spec.run import FIRST_WORD, PADDING, UNKNOWN, Description, Model, Numbering, RunSpec

log = structlog.get_logger(__name__)

HASHED = 16_384
"""Numbers that words are hashed to, unless data.json says otherwise: two words of one number cannot be told apart."""


def describe(rows: LabelledRows, declared: Declared) -> Description:
    """Length, classes, words that are told, number of training texts, warnings."""
    numbering, tokens = _choose_numbering(declared)
    longest, words = _look(rows, declared.fewest_told if numbering == "words" else 0)
    if numbering == "words" and not words:
        raise DataError(
            f"no word occurs in {declared.fewest_told} training texts, and only such words are told",
            expected="words that several texts have",
            advice=f'say a smaller "fewest" in {FILE}, or leave "tell_vocabulary" out: words are hashed then',
        )
    return Description(
        shape=(longest,),
        classes=rows.classes,
        samples=len(rows.labels("train")),
        kind="tokens",
        warnings=tuple(rows.warnings()),
        values="numbers",
        numbering=numbering,
        words=words,
        tokens=tokens,
    )


def tell(said: Description, declared: Declared) -> str:
    """What a site tells of its words, described for its own log."""
    return {
        "words": f"{len(said.words)} words that at least {declared.fewest_told} texts have, for the run's list that "
        'each site gets; without "tell_vocabulary" in data.json none is told',
        "withheld": "no word: the coordinator's --vocabulary has to name the run's list",
        "hashed": f"no word, only that words are hashed to {said.tokens} numbers; with "
        '"tell_vocabulary": true in data.json frequent ones are told by name',
    }[said.numbering]


def load(rows: LabelledRows, folder: DataFolder, spec: RunSpec) -> dict[str, Samples]:
    """All texts as the run's numbers of words."""
    check_run(folder, spec)
    encoder, numbers = TextEncoder(spec.model), number_classes(rows.classes, folder, spec)
    parts = {}
    for part in PARTS:
        blocks = [encoder.encode(block.columns[TEXT]) for _, block in rows.read(part, [TEXT])]
        x = np.concatenate(blocks) if blocks else np.zeros((0, encoder.length), np.int32)
        y = torch.tensor([numbers[label] for label in rows.labels(part)], dtype=torch.int64)
        parts[part] = Samples(torch.from_numpy(x), y)
        encoder.tell(folder, part)
    return parts


def check_run(folder: DataFolder, spec: RunSpec) -> None:
    """Refuse texts for a run about other data, or one whose numbers stand for words that nobody knows."""
    if spec.model.numbering not in ("words", "hashed"):
        raise DataError(
            f"{folder.site} has texts, the run is about other data",
            expected="a run on texts, whose words are hashed or listed",
            advice="check --data, or join another run",
        )


class TextEncoder:
    """Reads texts as the run agreed; it counts what is lost meanwhile."""

    def __init__(self, model: Model) -> None:
        self.length, self._tokens = model.shape[0], model.tokens
        self._numbers = {word: number for number, word in enumerate(model.words, start=FIRST_WORD)}
        self._hashed = model.numbering == "hashed"
        self._cut = self._words = self._unknown = 0

    def encode(self, texts: Sequence[str]) -> Numbers:
        """Numbers of words: shorter texts padded, longer ones cut."""
        encoded = np.full((len(texts), self.length), PADDING, np.int32)
        for row, text in zip(encoded, texts, strict=True):
            words = list(islice(cut_words(text), self.length + 1))
            self._cut += len(words) > self.length
            kept = [self._number(word) for word in words[: self.length]]
            self._words += len(kept)
            self._unknown += kept.count(UNKNOWN)
            row[: len(kept)] = kept
        return encoded

    def tell(self, folder: DataFolder, part: str) -> None:
        """Warn of what was lost since the last time."""
        if self._cut:
            log.warning(
                "texts are cut at the run's length",
                site=folder.site,
                part=part,
                texts=self._cut,
                words=self.length,
            )
        if self._unknown:
            share = f"{self._unknown / self._words:.1%}"
            log.warning(
                "words that the run's list does not have become unknown",
                site=folder.site,
                part=part,
                share=share,
            )
        self._cut = self._words = self._unknown = 0

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            if not self._hashed:
                return UNKNOWN
            number = self._numbers[word] = hash_word(word, self._tokens)
        return number


def _choose_numbering(declared: Declared) -> tuple[Numbering, int]:
    """How words become numbers, and how many numbers there are where all sites must have the same."""
    said = declared.vocabulary
    if isinstance(said, int):
        raise DataError(
            f"{FILE} says {said} for 'vocabulary', and the folder has texts, not numbers of words",
            expected=f'{{"vocabulary": {{"hashed": {said}}}}}, or nothing said of it',
            advice="correct it",
        )
    if isinstance(said, Hashed) and declared.tell_vocabulary is not None:
        raise DataError(
            f"{FILE} says 'tell_vocabulary' of words that are hashed",
            expected="one of the two: of hashed words nothing is told",
            advice="remove one of them",
        )
    if declared.tell_vocabulary is None:
        return "hashed", said.hashed if isinstance(said, Hashed) else HASHED
    return ("words" if declared.tell_vocabulary else "withheld"), 0


def _look(rows: LabelledRows, fewest: int) -> tuple[int, tuple[str, ...]]:
    """The longest text, and the words that at least `fewest` training texts have, or patients where they are known."""
    longest, owners = 1, dict[str, set[str]]()
    for part in PARTS[:3]:
        groups, done = rows.groups(part), 0
        for _, block in rows.read(part, [TEXT]):
            for text in block.columns[TEXT]:
                words = list(islice(cut_words(text), LONGEST_TEXT))
                longest = max(longest, len(words))
                if fewest and part == "train":
                    owner = groups[done] if groups else str(done)
                    for word in words:
                        own = owners.setdefault(word, set())
                        if len(own) < fewest:
                            own.add(owner)
                done += 1
    return longest, tuple(sorted(word for word, own in owners.items() if len(own) >= fewest))

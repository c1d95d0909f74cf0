"""Agrees on one word list and one text length for sites that hold texts.

A word is known by itself, as a class is: each site brings its own numbers to the run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pfl_common.errors import Refused
from pfl_common.spec.data_description import MOST_WORD_BYTES, MOST_WORDS
from pfl_common.spec.run import FIRST_WORD, ClientId, Description, Numbering

LONGEST = 1024
"""Words of the run's texts, unless the operator names a number: one site's long ones cost every site."""
MOST_NAMED = 5

Sites = Mapping[ClientId, Description]


@dataclass(frozen=True)
class Words:
    """The numbering of words in a run."""

    numbering: Numbering = ""
    tokens: int = 0
    words: tuple[str, ...] = ()


def choose_words(sites: Sites, listed: Sequence[str], fewest_sites: int = 1) -> Words:
    """The operator's list, else the words that enough sites tell, sorted.

    Of hashed words and of numbers only how many.
    """
    one = next(iter(sites.values()))
    if one.kind != "tokens":
        return Words()
    if one.numbering in ("hashed", "numbers"):
        return Words(one.numbering, one.tokens)
    words = tuple(listed) or _all_words(sites, fewest_sites)
    return Words("words", len(words) + FIRST_WORD, words)


def _all_words(sites: Sites, fewest_sites: int) -> tuple[str, ...]:
    tellers = Counter(word for description in sites.values() for word in description.words)
    return tuple(sorted(word for word, told in tellers.items() if told >= fewest_sites))


def choose_length(sites: Sites, wished: int) -> int:
    """The longest of the sites' texts, or what the operator says."""
    return wished or min(LONGEST, max(description.shape[0] for description in sites.values()))


def tell_hindrance(sites: Sites, listed: Sequence[str], fewest_sites: int = 1) -> str:
    """Why these sites' words make no list for a run; else nothing."""
    silent = [site for site, one in sorted(sites.items()) if one.numbering == "withheld"]
    if listed or not any(one.numbering in ("words", "withheld") for one in sites.values()):
        return ""
    if silent:
        return (
            f"{_name(silent)} keeps its words to itself; expected: a list of words that the operator names; "
            "what to do: start the coordinator with --vocabulary FILE (each site numbers its words by that), or hash "
            'the words at all sites: {"vocabulary": {"hashed": 32000}} in data.json'
        )
    words = _all_words(sites, fewest_sites)
    if not words:
        return (
            f"no word is told by {fewest_sites} sites; expected: words that the run's list can be made of; what to do: "
            "start the coordinator with a smaller --fewest-sites, or name a list with --vocabulary FILE"
        )
    size = sum(len(word.encode()) for word in words)
    if len(words) <= MOST_WORDS and size <= MOST_WORD_BYTES:
        return ""
    most = max(sorted(sites), key=lambda site: len(sites[site].words))
    return (
        f"the sites' lists have {len(words)} words of {size} bytes together, most of them {most} "
        f"({len(sites[most].words)}); expected: at most {MOST_WORDS} words of {MOST_WORD_BYTES} bytes; what to do: "
        'name a list with --vocabulary FILE, or hash the words at all sites: {"vocabulary": {"hashed": 32000}} in '
        "data.json"
    )


def check_numbering(site: ClientId, description: Description, listed: Sequence[str]) -> None:
    """Refuse a site whose words cannot be numbered by the operator's list."""
    if listed and description.numbering in ("hashed", "numbers"):
        raise Refused(
            "shape",
            f"{site} has {tell_numbering(description)}, and --vocabulary names a list of {len(listed)} words; expected:"
            ' words in vocabulary.json; what to do: write that file and leave "vocabulary" out of data.json, or ask '
            "the operator to start without --vocabulary",
        )


def tell_numbering(one: Description) -> str:
    """How a site's words are numbered, in a few words."""
    if one.numbering == "hashed":
        return f"texts with words hashed to {one.tokens} numbers"
    return (
        f"texts of {one.tokens} numbers"
        if one.numbering == "numbers"
        else "texts numbered by a list of words"
    )


def explain(sites: Sites, wished: int, listed: Sequence[str], fewest_sites: int = 1) -> dict[str, str]:
    """The choice and its reasons, in words for operator and sites."""
    chosen, length = choose_words(sites, listed, fewest_sites), choose_length(sites, wished)
    return {
        "words": _explain_words(chosen, len(sites), listed, fewest_sites),
        "length": _explain_length(sites, wished, length),
    }


def _explain_words(chosen: Words, sites: int, listed: Sequence[str], fewest_sites: int) -> str:
    if chosen.numbering == "hashed":
        return f"hashed to {chosen.tokens} numbers at each site: words of one number cannot be told apart"
    if chosen.numbering == "numbers":
        return (
            f"{chosen.tokens} numbers, as all sites say; whether they mean the same words nobody has checked"
        )
    count = len(chosen.words)
    if listed:
        return f"{count} words, as --vocabulary says; a site's other words are unknown words"
    if fewest_sites > 1:
        return f"{count} words that at least {fewest_sites} sites tell, sorted; --vocabulary FILE names another list"
    return f"all {count} words of {sites} sites, sorted; --vocabulary FILE names another list"


def _explain_length(sites: Sites, wished: int, length: int) -> str:
    longest = max(sites, key=lambda site: (sites[site].shape[0], site))
    most = sites[longest].shape[0]
    shorter = "shorter texts are padded with 0" + (", longer ones cut" if most > length else "")
    if wished:
        return f"{length} words a text, as --length says; {shorter}"
    why = f"the longest of all sites ({longest})" if most == length else f"at most, {longest} has {most}"
    return f"{length} words a text, {why}; {shorter}; --length N chooses another"


def _name(sites: Sequence[ClientId]) -> str:
    more = len(sites) - MOST_NAMED
    return ", ".join(sites[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

"""Puts the sites' class names together into the class list of a run, and compares them: names that almost match,
classes only one site has, sites without a class in common.

A class is known by its name, so `Cat` beside `cat` makes two of one. What is found is told and never mended here:
only people know whether two names mean the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pfl_common.spec.run import ClientId

MOST_REMARKS = 12
MOST_NAMED = 5
LONGEST_NAME = 60
"""A name is shown no longer than this."""
SHORTEST = 4
"""Shorter names often differ by one letter and mean something else: cat, bat."""
MOST_COMPARED, LONGEST_COMPARED = 2000, 64
"""Beyond these, letters are not compared: with very many names near ones are no mistake any more."""
MOST_ALIKE = 16
"""More names that are equal without one letter are a series: nobody mistypes so often, and pairs of them are legion."""

_TOKENS = re.compile(r"[\s_.,;:/()-]+")
_SPACES = str.maketrans("_-", "  ")
_ROMAN = re.compile(r"[ivx]+")


def common_classes(sites: Mapping[ClientId, Sequence[str]]) -> tuple[str, ...]:
    """The class list of a run. Equal lists keep their order; otherwise all names, sorted, numbers by their size: a
    class has the same index everywhere.
    """
    lists = {tuple(names) for names in sites.values()}
    if len(lists) == 1:
        return lists.pop()
    return tuple(sorted({name for names in lists for name in names}, key=_by_number))


def _by_number(name: str) -> tuple[bool, int, str]:
    number = re.fullmatch(r"[0-9]{1,18}", name)
    return number is None, int(name) if number else 0, name


def alone(sites: Mapping[ClientId, Sequence[str]]) -> tuple[ClientId, ...]:
    """Sites that have no class in common with any other."""
    having = Counter(name for classes in sites.values() for name in set(classes))
    return tuple(
        site for site, classes in sorted(sites.items()) if all(having[name] == 1 for name in classes)
    )


def tell_alone(sites: Mapping[ClientId, Sequence[str]]) -> str:
    """Why a run of these sites makes no sense: more than half of them share no class with any other; else nothing."""
    apart = alone(sites)
    if len(sites) < 2 or 2 * len(apart) <= len(sites):
        return ""
    owned = "; ".join(f"{site}: {_quote(sites[site])}" for site in apart[:MOST_NAMED])
    more = f" and {len(apart) - MOST_NAMED} more" if len(apart) > MOST_NAMED else ""
    return (
        f"{len(apart)} of {len(sites)} sites have no class in common with any other ({owned}{more}); expected: the "
        "same names for the same classes; what to do: rename the classes at these sites and start them again; if the "
        "names are right, start the coordinator with --classes and all of them"
    )


def remark(sites: Mapping[ClientId, Sequence[str]], *, fixed: bool = False) -> tuple[str, ...]:
    """Remarks for people before a run with these sites begins. With a fixed list, a site that lacks a class is none."""
    told = [*_tell_near(sites), *(() if fixed else _tell_single(sites))]
    more = len(told) - MOST_REMARKS
    return (*told[:MOST_REMARKS], f"and {more} more remarks on class names") if more > 0 else tuple(told)


def _tell_near(sites: Mapping[ClientId, Sequence[str]]) -> Iterator[str]:
    having: dict[str, list[ClientId]] = defaultdict(list)
    for site, classes in sorted(sites.items()):
        for name in set(classes):
            having[name].append(site)
    for one, other, how in find_near(sites.values()):
        first, second = (f"{_quote([name])} ({_tell_sites(having[name])})" for name in (one, other))
        yield (
            f"{first} and {second} are two classes and differ only in {how}: if they mean the same, give them one name"
        )


def _tell_single(sites: Mapping[ClientId, Sequence[str]]) -> Iterator[str]:
    if len(sites) < 2:
        return
    having = Counter(name for classes in sites.values() for name in set(classes))
    for site, classes in sorted(sites.items()):
        single = [name for name in sorted(set(classes)) if having[name] == 1]
        if single:
            word = "class" if len(single) == 1 else f"{len(single)} classes"
            yield f"only {site} has the {word} {_quote(single)}: no other site teaches it anything about that"


def find_near(lists: Iterable[Sequence[str]]) -> list[tuple[str, str, str]]:
    """Pairs of names that almost match, and in what they differ. Names that one site keeps apart are meant so, unless
    nothing but case, space or Unicode form is different.
    """
    lists = [tuple(classes) for classes in lists]
    names = sorted({name for classes in lists for name in classes})
    found = {pair: _tell_fold(*pair) for pair in _alike(names)}
    if len(names) <= MOST_COMPARED:
        together = defaultdict(set)
        for at, classes in enumerate(lists):
            for name in classes:
                together[name].add(at)
        apart = (pair for pair in _one_letter(names) if not together[pair[0]] & together[pair[1]])
        found |= {
            pair: "one letter" for pair in apart if pair not in found and _is_slip(*map(_letters, pair))
        }
    return [(*pair, how) for pair, how in sorted(found.items())]


def _flat(name: str) -> str:
    """One form of Unicode, and in words a space for what stands in a space's place: `lung_opacity`, `lung-opacity`."""
    form = unicodedata.normalize("NFKC", name)
    return form.translate(_SPACES) if any(sign.isalpha() for sign in form) else form


def _fold(name: str) -> str:
    return "".join(_flat(name).casefold().split())


def _alike(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each name beside the first one that is the same but for case, space and Unicode form."""
    first: dict[str, str] = {}
    for name in names:
        before = first.setdefault(_fold(name), name)
        if before != name:
            yield before, name


def _tell_fold(one: str, other: str) -> str:
    forms = [unicodedata.normalize("NFKC", name) for name in (one, other)]
    ways = []
    if "".join(_flat(one).split()) != "".join(_flat(other).split()):
        ways.append("case")
    if forms[0].casefold() != forms[1].casefold() and [form.casefold() for form in forms] != [
        _fold(one),
        _fold(other),
    ]:
        ways.append("space")
    return " and ".join(ways) or "Unicode form"


def _one_letter(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs that one letter put in, left out or exchanged may make equal: they share what is left without a letter."""
    without: dict[str, set[str]] = defaultdict(set)
    for name in names:
        folded = _letters(name)
        if SHORTEST <= len(folded) <= LONGEST_COMPARED:
            for left in {folded, *(folded[:at] + folded[at + 1 :] for at in range(len(folded)))}:
                without[left].add(name)
    few = [alike for alike in without.values() if len(alike) <= MOST_ALIKE]
    yield from sorted({(one, other) for alike in few for one in alike for other in alike if one < other})


def _letters(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _is_slip(one: str, other: str) -> bool:
    """Whether two names differ by one letter of a word. A number, a code, or a letter or roman number that stands for
    itself (`type a`, `stage II`) tells classes apart on purpose.
    """
    start = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    back = 0
    while back < min(len(one), len(other)) - start and one[-1 - back] == other[-1 - back]:
        back += 1
    middles = one[start : len(one) - back], other[start : len(other) - back]
    if max(map(len, middles)) != 1 or not all(sign.isalpha() for middle in middles for sign in middle):
        return False
    words = _word_at(one, start), _word_at(other, start)
    coded = any(sign.isdigit() for word in words for sign in word)
    roman = all(_ROMAN.fullmatch(word) for word in words)
    return not coded and not roman and max(map(len, words)) > 1


def _word_at(name: str, at: int) -> str:
    """The word of a name that a place lies in, or ends."""
    before, after = _TOKENS.split(name[:at])[-1], _TOKENS.split(name[at:])[0]
    return before + after


def _quote(names: Sequence[str]) -> str:
    """Names as text that cannot be mistaken; they are a peer's."""
    shown = [show_name(name) for name in names[:MOST_NAMED]]
    more = len(names) - MOST_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def show_name(name: str) -> str:
    """One such name."""
    return "'" + "".join(s if s.isprintable() else "\ufffd" for s in name[:LONGEST_NAME]) + "'"


def _tell_sites(sites: Sequence[ClientId]) -> str:
    more = len(sites) - MOST_NAMED
    return ", ".join(sites[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

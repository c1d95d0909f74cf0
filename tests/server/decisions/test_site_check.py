"""With which sites a run begins: the odd one is sent away in words, and without a majority nobody is."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.errors import DataError, Refused, SettingError
from pfl_common.spec.messages import Gathering, Joined
from pfl_common.spec.run import Description
from pfl_common.spec.sample_form import read_form
from pfl_server.decisions.site_check import Verdict, check_classes, check_site, judge
from pfl_server.settings import ServerSettings
from pfl_server.sites import gathering as reception
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.gathering import Reception, Rules
from pfl_server.sites.notices import Notices
from pfl_server.store.run_store import Books
from tests.server.support.federation import DESCRIPTION, build_spec, open_run

TABLE = DESCRIPTION
PICTURE = Description((3, 8, 8), ("cat", "dog"), 10, high=255.0)
OTHER = Description((2,), ("wolf", "fox"), 10, "array")


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    books = open_run(tmp_path, build_spec(sites=("a", "b")))
    yield books
    books.journal.close()


@pytest.mark.parametrize(
    ("sites", "fitting", "odd", "hindered"),
    [
        ({"a": TABLE, "b": TABLE}, "ab", "", ""),
        ({"a": TABLE, "b": TABLE, "c": PICTURE}, "ab", "c", ""),
        ({"a": PICTURE, "b": TABLE, "c": TABLE, "d": TABLE}, "bcd", "a", ""),
        ({"a": TABLE, "b": PICTURE}, "", "", "no more than half of them agree"),
        ({"a": TABLE, "b": PICTURE, "c": Description((9,), ("x",), 3, "array")}, "", "", "no more than half"),
        ({"a": TABLE, "b": TABLE, "c": PICTURE, "d": PICTURE}, "", "", "a, b: numbers of shape (2,)"),
        ({"a": TABLE, "b": OTHER}, "ab", "", "2 of 2 sites have no class in common"),
        ({"a": TABLE, "b": TABLE, "c": OTHER}, "abc", "", ""),
    ],
    ids=[
        "all fit",
        "one of three",
        "one of four",
        "two",
        "three ways",
        "two and two",
        "no class",
        "one class",
    ],
)
def test_who_begins(sites: Mapping[str, Description], fitting: str, odd: str, hindered: str) -> None:
    """More than half of the sites say what the run is about; with fewer, people have to."""
    verdict = judge(sites, wanted=2)
    assert (tuple(fitting), tuple(odd)) == (verdict.fitting, tuple(verdict.odd))
    assert hindered in verdict.hindrance
    assert bool(hindered) is bool(verdict.hindrance)


def test_two_that_disagree_are_told_what_to_pin() -> None:
    """Nobody but people knows who is wrong: the operator reads what to say for the one and for the other."""
    words = judge({"a": TABLE, "b": PICTURE}, wanted=2).hindrance
    assert "--shape array:2 (as a) or --shape image (as b)" in words
    check_site("a", TABLE, classes=(), words=(), form=read_form("array:2"))
    with pytest.raises(Refused, match="b has samples of the form image; expected: array:2"):
        check_site("b", PICTURE, classes=(), words=(), form=read_form("array:2"))


def test_a_site_with_very_many_classes_is_sent_away_alone() -> None:
    """Each class costs everybody's network a row; where the operator has named them it is refused by that list."""
    many = replace(TABLE, classes=tuple(map(str, range(20_000))))
    verdict = judge({"a": TABLE, "b": TABLE, "h": many}, wanted=2)
    assert (("a", "b"), {"h"}, "") == (verdict.fitting, verdict.odd.keys(), verdict.hindrance)
    assert "h names 20000 classes; expected: about 2" in verdict.odd["h"]
    thousand = replace(TABLE, classes=tuple(map(str, range(1000))))
    assert {} == judge({"a": TABLE, "b": TABLE, "c": thousand}, wanted=2).odd


def test_a_site_with_words_without_number_is_sent_away_alone() -> None:
    """The lists of all together are too long because of one: the others begin without it."""
    text = Description(
        (9,), ("bad", "good"), 9, "tokens", values="numbers", numbering="words", words=("fever",)
    )
    loud = replace(text, words=tuple(f"{n:08}" for n in range(99_999)))
    verdict = judge({"a": text, "b": replace(text, words=("fever", "pain")), "h": loud}, wanted=2)
    assert (("a", "b"), {"h"}, "") == (verdict.fitting, verdict.odd.keys(), verdict.hindrance)
    assert (
        "no word is told by 3 sites"
        in judge({"a": text, "b": text, "h": loud}, wanted=2, fewest_sites=3).hindrance
    )


def test_a_list_that_was_fixed() -> None:
    """A site with another name is refused with what is known; sites without a common class are then meant so."""
    check_classes("a", TABLE, ())
    check_classes("a", TABLE, ("cat", "dog", "wolf"))
    with pytest.raises(Refused, match="a has classes that --classes does not name: 'dog'") as refused:
        check_classes("a", TABLE, ("cat", "dogs"))
    assert "did you mean 'dogs'" in refused.value.words
    assert "" == judge({"a": TABLE, "b": OTHER}, wanted=2, classes=("cat", "dog", "fox", "wolf")).hindrance


def test_a_long_list_that_was_fixed() -> None:
    """Thousands of names on both sides are refused as fast as one, each name cut short."""
    listed = tuple(f"class {n:05d}" for n in range(20_000))
    said = replace(TABLE, classes=tuple("x" * 900 + str(n) for n in range(20_000)))
    with pytest.raises(Refused, match="20000") as refused:
        check_classes("a", said, listed)
    assert len(refused.value.words) < 1000


async def test_classes_are_compared_where_no_call_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are the sites' own words, however many: what compares them is not the event loop's thread."""
    threads = []

    def look(*given: object, **words: object) -> Verdict:
        threads.append(threading.current_thread())
        return judge(*given, **words)

    monkeypatch.setattr(reception, "judge", look)
    desk = Reception("fedavg")
    calls = [asyncio.create_task(desk.join(site, TABLE)) for site in "ab"]
    assert ["a", "b"] == list(await desk.gather(2))
    assert threads
    assert threading.main_thread() not in threads
    desk.drain()
    await asyncio.gather(*calls)


async def test_one_that_goes_or_is_mended_while_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided of data that a site has no longer is not held against it."""
    going, judged = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def look(sites: Mapping[str, Description], **words: object) -> Verdict:
        if PICTURE in sites.values():
            loop.call_soon_threadsafe(going.set)
            judged.wait(30)
        return judge(sites, **words)

    monkeypatch.setattr(reception, "judge", look)
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(4))
    calls = [asyncio.create_task(desk.join(site, TABLE)) for site in "abc"]
    first = asyncio.create_task(desk.join("odd", PICTURE))
    await going.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    calls.append(asyncio.create_task(desk.join("odd", TABLE)))
    await asyncio.sleep(0)
    judged.set()
    assert ["a", "b", "c", "odd"] == list(await gathering)
    desk.drain()
    await asyncio.gather(*calls)
    assert {} == desk.status().refused


async def test_the_odd_one_is_sent_away_and_the_others_wait_on(books: Books) -> None:
    """Three are wanted: the picture is refused in words, the tables wait for a third that fits."""
    desk = Reception("fedavg", notices := Notices())
    gathering = asyncio.create_task(desk.gather(3))
    odd = asyncio.create_task(desk.join("odd", PICTURE))
    others = [asyncio.create_task(desk.join(site, TABLE)) for site in "ab"]
    with pytest.raises(Refused, match="odd has pictures") as refused:
        await odd
    assert "shape" == refused.value.code
    assert not gathering.done()
    assert {"odd": refused.value.words} == desk.status().refused
    assert (2, 0, 0) == desk.heard()
    others.append(asyncio.create_task(desk.join("c", TABLE)))
    assert ["a", "b", "c"] == list(await gathering)
    fleet = Fleet(books, notices=notices)
    desk.open(fleet)
    assert all(isinstance(answer, Joined) for answer in await asyncio.gather(*others))
    assert ["odd"] == list(fleet.status().refused)


async def test_one_that_comes_back_mended_is_taken() -> None:
    """Under the same name, with other data: its refusal is over."""
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(3))
    calls = [asyncio.create_task(desk.join(site, TABLE)) for site in "ab"]
    for _ in range(2):
        with pytest.raises(Refused):
            await desk.join("odd", PICTURE)
    calls.append(asyncio.create_task(desk.join("odd", TABLE)))
    assert ["a", "b", "odd"] == list(await gathering)
    desk.drain()
    await asyncio.gather(*calls)
    assert {} == desk.status().refused


async def test_two_that_differ_hear_how_and_nobody_ends() -> None:
    """Both are told at once, the operator too; the mended one lets the run begin."""
    desk = Reception("fedavg", wanted={"rounds": 7, "sites": 2})
    gathering = asyncio.create_task(desk.gather(2))
    answers = await asyncio.gather(desk.join("a", TABLE), desk.join("b", PICTURE))
    for answer in answers:
        assert isinstance(answer, Gathering)
        assert re.search(r"a: .*\(2,\).*; b: pictures", answer.words[0])
    status = desk.status()
    assert ("gathering", answers[0].words[0]) == (status.status, status.words)
    assert ["error"] == [event.level for event in status.events if answers[0].words[0][:30] in event.words]
    waiting = [asyncio.create_task(desk.join("b", TABLE)), asyncio.create_task(desk.join("a", TABLE))]
    assert ["a", "b"] == list(await gathering)
    assert "" == desk.status().words
    desk.drain()
    await asyncio.gather(*waiting)


async def test_a_simulation_does_not_wait_for_what_cannot_come() -> None:
    """All are there that will ever be: what keeps the run from beginning is its end."""
    desk = Reception("fedavg", rules=Rules(all_here=True))
    gathering = asyncio.create_task(desk.gather(2))
    calls = [asyncio.create_task(desk.join("a", TABLE)), asyncio.create_task(desk.join("b", PICTURE))]
    with pytest.raises(DataError, match=r"a: .*\(2,\).*; b: pictures"):
        await gathering
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_site_that_goes_takes_the_hindrance_along() -> None:
    """What was said of it is said no longer."""
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(2))
    await asyncio.gather(desk.join("a", TABLE), desk.join("b", PICTURE))
    await desk.leave("b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "" == desk.status().words
    gathering.cancel()
    await asyncio.gather(gathering, return_exceptions=True)


async def test_what_a_site_found_odd_reaches_the_operator(capsys: pytest.CaptureFixture[str]) -> None:
    """In the log once and in the status by site, a few short lines of text."""
    loud = Description((2,), ("cat", "dog"), 10, "array", ("one\x1b[31m class", *["w" * 5000] * 99))
    desk = Reception("fedavg")
    gathering = asyncio.create_task(desk.gather(3))
    joining = asyncio.create_task(desk.join("a", loud))
    again = asyncio.create_task(desk.join("a", loud))
    await asyncio.sleep(0)
    (line,) = desk.status().sites
    assert ("one\\x1b[31m class", 16, 1000) == (
        line.warnings[0],
        len(line.warnings),
        max(map(len, line.warnings)),
    )
    assert 1 == capsys.readouterr().out.count("x1b[31m class")
    for task in (joining, again, gathering):
        task.cancel()
    await asyncio.gather(joining, again, gathering, return_exceptions=True)


def test_a_list_of_classes_as_it_is_typed(tmp_path: Path) -> None:
    """With commas, as TOML has it, or in a file."""
    from pfl_common.app.config import settle

    plain, lines = tmp_path / "classes.json", tmp_path / "classes.txt"
    plain.write_text('["cat (big)", "dog, small"]')
    lines.write_text("cat (big)\ndog, small\n\n")
    for said, found in (
        ("cat, dog (big)", ("cat", "dog (big)")),
        (["cat", "dog"], ("cat", "dog")),
        (str(plain), ("cat (big)", "dog, small")),
        (str(lines), ("cat (big)", "dog, small")),
        ("", ()),
    ):
        assert found == settle(ServerSettings, {"classes": said}, what="pfl-server").classes
    plain.write_text("[1, 2")
    for said in ("cat", "cat,cat", [1, 2], ["cat", ""], str(plain), str(tmp_path / "none.txt")):
        with pytest.raises(SettingError, match="'classes' is") as error:
            settle(ServerSettings, {"classes": said}, what="pfl-server")
        assert "two or more different names" in error.value.expected


def test_a_list_of_classes_with_an_empty_name_is_refused(tmp_path: Path) -> None:
    """A name that got lost, in a shell's empty variable for one, is not as if nothing had been said."""
    from pfl_common.app.config import settle

    files = {name: tmp_path / name for name in ("empty.txt", "blank.txt", "none.json", "one_less.json")}
    for file, text in zip(files.values(), ("", "\n \n", "[]", '["cat", "", "dog"]'), strict=True):
        file.write_text(text)
    for said in (",,", ",", " ", "cat,,dog", ",cat,dog", "cat,dog,", *map(str, files.values())):
        with pytest.raises(SettingError, match="'classes' is") as error:
            settle(ServerSettings, {"classes": said}, what="pfl-server")
        assert "two or more different names, none of them empty" in error.value.expected
    assert () == settle(ServerSettings, {"classes": []}, what="pfl-server").classes


def test_many_classes_are_typed_at_once() -> None:
    """Longer than the name of any file."""
    from pfl_common.app.config import settle

    names = tuple(f"stage {number}" for number in range(100))
    assert names == settle(ServerSettings, {"classes": ",".join(names)}, what="pfl-server").classes

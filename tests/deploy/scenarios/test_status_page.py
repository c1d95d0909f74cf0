"""The status page in a real browser: the facts of `pfl status`, live, readable, deaf to what peers would make of it.

Pictures are kept in the folder that PFL_TEST_OUTPUT names, else in the test's own.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pfl_common.spec.messages import NOT_SINCE, Event, Point, RunStatus, SiteStatus
from pfl_deploy.operator.status_text import (
    tell_place,
    tell_rounds,
    tell_sentence,
    tell_troubles,
    tell_warnings,
)
from pfl_server.telemetry.counters import PHASES
from tests.deploy.support.browser import Browser, browsing
from tests.deploy.support.processes import Machine, write_site
from tests.deploy.support.served_page import (
    FAINT,
    HIDE,
    NAMES,
    NOW,
    UNNAMED,
    Served,
    overflow,
    rows,
    under_way,
    visit,
)

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740, "scale": 2}
TOO_FEW = "2 sites: the mean over fewer than 5 is not shown"
HOSTILE = "<img src=x onerror=\"window.hurt='by'\"></td><script>window.hurt=1</script>&lt;b&gt;'\"`${hurt}"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser."""
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The same one, its size and zone as always, with nothing left over from the test before."""
    window.look(**DESKTOP)
    window.command("Emulation.setTimezoneOverride", timezoneId="UTC")
    window.requests(), window.complaints()
    yield window
    window.open("about:blank")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where pictures go."""
    return Path(os.environ.get("PFL_TEST_OUTPUT") or tmp_path) / "status-page"


@pytest.fixture
def served() -> Iterator[Served]:
    """Such a run, served."""
    found = Served(under_way(), 0)
    with found.running():
        yield found


# -- a real coordinator and its sites


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Three sites' data, and whatever is started with them."""
    place = Machine(tmp_path / "machine")
    for seed, name in enumerate(NAMES):
        write_site(place.home / name, samples=24 + 6 * seed, size=12, seed=seed)
    yield place
    place.end_all()


def test_a_run_in_mid_round(browser: Browser, machine: Machine, kept: Path) -> None:
    """One site is halted, so the round stays open: the page says what `pfl status` says, and goes on with it."""
    words = ("--method", "dualfed", "--sites", "3", "--rounds", "400", "--quorum", "1", "--backbone", "mlp")
    server = machine.server(*words, "--durability", "process")
    halted, *_ = [machine.client(machine.home / name) for name in NAMES]
    url = json.loads(json.dumps(machine.discovery()))["http"]
    machine.wait_for(lambda: json.loads(machine.read(f"{url}/status.json"))["round"] >= 4, server, "server")
    halted.send_signal(signal.SIGSTOP)
    try:
        machine.wait_for(lambda: still(machine, url), server, "server")
        visit(browser, f"{url}/")
        browser.wait_for(lambda: browser.text("#awaited").endswith(f"1 of 3: {NAMES[0]}."))
        told = json.loads(machine.call("pfl", "status", "--json").stdout)
        check_facts(browser, told)
        shown = machine.call("pfl", "status").stdout
        for words in (
            f"round {told['round']} of 400",
            f"Waiting for {NAMES[0]}.",
            browser.text("#meanwords"),
        ):
            assert words in " ".join(shown.split()), shown
        for name, window in {"desktop": DESKTOP, "phone": PHONE, "dark": {**DESKTOP, "dark": True}}.items():
            browser.look(**window)
            assert [] == overflow(browser)
            browser.picture(kept / f"mid-round-{name}.png")
        browser.run("window.mark = 'the same document'")
    finally:
        halted.send_signal(signal.SIGCONT)
    browser.wait_for(lambda: told["round"] < int(re.findall(r"\d+", browser.text("#place"))[0]))
    assert "the same document" == browser.run("return window.mark")
    assert [] == browser.complaints()
    assert {url.removeprefix("http://")} == {
        asked.split("/")[2] for asked in browser.requests() if asked != "about:blank"
    }


def still(machine: Machine, url: str) -> bool:
    """Whether only the halted site is awaited, and what the others measured has come in."""
    told = json.loads(machine.read(f"{url}/status.json"))
    return [NAMES[0]] == told["awaited"] and 2 == told["counted"]


def check_facts(browser: Browser, told: dict[str, Any]) -> None:
    """Each fact of a status stands in the page."""
    assert "Running" == browser.text("#state")
    assert f"Round {told['round']} of {told['rounds']}" == browser.text("#place")
    assert (told["method"], told["run"]) == (browser.text("#method"), browser.text("#run"))
    sites = [[line["site"], line["state"], line["phase"]] for line in told["sites"]]
    browser.wait_for(lambda: sites == [row[:3] for row in rows(browser)])
    browser.run("document.getElementById('numbers').open = true; document.getElementById('more').click()")
    browser.wait_for(lambda: len(told["curve"]) == len(browser.texts("#rounds tbody tr")))
    for point, row in zip(reversed(told["curve"]), browser.texts("#rounds tbody tr"), strict=True):
        cells = row.split("\t")
        mean = "–" if point["accuracy"] is None else f"{100 * point['accuracy']:.1f} %"
        assert [str(point["round"]), mean, str(point["counted"])] == [cells[0], cells[2], cells[5]]
        assert point["seconds"] == pytest.approx(float(cells[-1]), abs=0.006)
    shown = [re.sub(r"^(warning|error): ", "", words) for words in browser.texts("#events span")]
    assert [event["words"] for event in told["events"]] == shown
    spec = dict(zip(browser.texts("#spec dt"), browser.texts("#spec dd"), strict=True))
    assert (told["spec"]["backbone"], str(told["spec"]["sites"])) == (spec["network"], spec["sites"])
    assert all(f"{name} = " in spec["settings"] for name in told["spec"]["settings"])
    assert all(phase in browser.text("#phases-key") for phase in told["phases"])


def test_sites_that_have_left_are_said_to_have(browser: Browser, served: Served) -> None:
    """After a run nobody is here: not a fault, so the tile says where they are."""
    gone = tuple(SiteStatus(name, "away", 3.0, "has left", "left") for name in NAMES)
    served.status = under_way(status="finished", sites=gone)
    visit(browser, served.url)
    assert "0 of 3 sites are here, 3 have left" == " ".join(browser.text("#tiles li").split())
    served.status = under_way(sites=(gone[0], *under_way().sites[1:]))
    browser.wait_for(
        lambda: "1 of 3 sites are here, 1 has left" == " ".join(browser.text("#tiles li").split())
    )


@pytest.mark.parametrize(("measured", "words"), [(2, TOO_FEW), (0, "nothing is measured yet")])
def test_a_chart_without_points_says_why(browser: Browser, served: Served, measured: int, words: str) -> None:
    """Its axis is whole, and where curves would be it says why there are none."""
    served.status = under_way(fewest_reporters=5, curve=hidden(measured))
    visit(browser, served.url)
    browser.wait_for(lambda: [words] == written(browser, ".note"))
    assert [f"{share} %" for share in (0, 20, 40, 60, 80, 100)] == written(browser, ".right")
    served.status = under_way()
    browser.wait_for(lambda: [] == written(browser, ".note"))


def written(browser: Browser, kind: str) -> list[str]:
    """The words of a kind that stand in the drawing of the accuracy."""
    found = f"document.querySelectorAll('#chart-accuracy svg text{kind}')"
    return list(browser.run(f"return [...{found}].map((one) => one.textContent)"))


def hidden(measured: int) -> tuple[Point, ...]:
    """Closed rounds of which no accuracy is told."""
    nothing = {"accuracy": None, "spread": None, "worst_decile": None}
    return tuple(replace(point, measured=measured, **nothing) for point in under_way().curve)


# -- what peers say


def test_hostile_words_stay_words(browser: Browser, served: Served, kept: Path) -> None:
    """Markup in any fact, from any peer, is shown as it was written and does nothing."""
    long = HOSTILE + "x" * 200
    sites = (
        SiteStatus(HOSTILE, HOSTILE, 1.0, f"declined: {long}", HOSTILE),
        SiteStatus("b", "here", 1.0, long),
    )
    served.status = under_way(words=long, events=(Event(NOW, "error", long), Event(NOW, HOSTILE, HOSTILE)))
    served.status = replace(
        served.status,
        run=HOSTILE,
        method=HOSTILE,
        sites=sites,
        awaited=(HOSTILE, long),
        spec={HOSTILE: HOSTILE, "settings": {HOSTILE: HOSTILE}},
        phases={HOSTILE: 1.0},
    )
    visit(browser, served.url)
    assert None is browser.run("return window.hurt ?? null")
    assert [0, 0] == browser.run(
        "return ['img', 'body script'].map((kind) => document.querySelectorAll(kind).length)"
    )
    assert [HOSTILE, HOSTILE, HOSTILE] == rows(browser)[0][:3]
    for place in (
        "#words",
        "#roster",
        "#events",
        "#spec",
        "#run",
        "#method",
        "#awaited",
        "#saying",
        "#phases-key",
    ):
        assert HOSTILE in browser.run("return document.querySelector(arguments[0]).textContent", place), place
    for width in (320, 360, 768, 1280):
        browser.look(width=width, height=800)
        assert [] == overflow(browser), width
    browser.picture(kept / "hostile-words.png")
    assert [] == browser.complaints()


def test_markup_from_text_is_refused_by_the_browser(browser: Browser, served: Served) -> None:
    """Even a script of the page itself could not do it: the rule that comes with the page forbids it."""
    visit(browser, served.url)
    markup = "document.body.insertAdjacentHTML('beforeend', '<b>bold</b>')"
    assert "TypeError" == browser.run(
        f"try {{ {markup}; return 'done' }} catch (error) {{ return error.name }}"
    )


# -- many, long, gone


def test_a_thousand_sites(browser: Browser, served: Served, kept: Path) -> None:
    """At most 200 rows are shown, and said to be; naming one, choosing a phase and sorting find all others."""
    doing = ("working", "uploading", "waiting", "away")
    served.status = under_way(
        sites=tuple(SiteStatus(f"site-{n}", "here", float(n), "busy", doing[n % 4]) for n in range(1000))
    )
    visit(browser, served.url)
    assert 200 == len(rows(browser))
    assert "200 of 1000" in browser.text("#shown")
    assert ["site-0", "site-1", "site-2"] == [row[0] for row in rows(browser)[:3]]
    browser.picture(kept / "thousand-sites.png", whole=False)
    browser.run(
        "document.querySelector('[data-by=seen]').click(); document.querySelector('[data-by=seen]').click()"
    )
    assert "site-999" == rows(browser)[0][0]
    assert "descending" == browser.run(
        "return document.querySelector('th:has([data-by=seen])').getAttribute('aria-sort')"
    )
    browser.run(
        "const s = document.getElementById('sought'); s.value = 'SITE-77'; s.dispatchEvent(new Event('input'))"
    )
    assert {"site-77", *(f"site-77{n}" for n in range(10))} == {row[0] for row in rows(browser)}
    browser.run(
        "const s = document.getElementById('phase'); s.value = 'away'; s.dispatchEvent(new Event('change'))"
    )
    assert {n for n in (77, *range(770, 780)) if n % 4 == 3} == {int(row[0][5:]) for row in rows(browser)}
    served.status = replace(served.status, sites=served.status.sites[:776])
    browser.wait_for(lambda: ["site-775", "site-771"] == [row[0] for row in rows(browser)])
    again = "document.getElementById('sought').dispatchEvent(new Event('input'))"
    spent = browser.run(f"const began = performance.now(); {again}; return performance.now() - began")
    assert spent < 500  # milliseconds; a tenth of that where the machine does nothing else


def test_sites_that_were_not_heard_since_a_restart(browser: Browser, served: Served) -> None:
    """When they were heard before the coordinator does not know: said so, and sorted behind all others."""
    lines = [SiteStatus("a", "away", NOT_SINCE, "away", "away"), SiteStatus("b", "here", 0.0)]
    served.status = under_way(sites=(*lines, SiteStatus("c", "away", 75.0, "", "away")))
    visit(browser, served.url)
    assert ["not since the restart", "now", "75 s ago"] == [row[3] for row in rows(browser)]
    for order in (["b", "c", "a"], ["a", "c", "b"]):
        browser.run("document.querySelector('#roster button[data-by=seen]').click()")
        assert order == [row[0] for row in rows(browser)]


def test_thirty_sites_on_a_phone(browser: Browser, served: Served, kept: Path) -> None:
    """There a row is a card: a dozen is shown, the others at a touch, and what happened is not far below."""
    served.status = under_way(sites=tuple(SiteStatus(f"site-{n}", "here", 0.0) for n in range(30)))
    browser.look(**PHONE)
    visit(browser, served.url)
    assert (12, "All 30") == (len(rows(browser)), browser.text("#more-sites"))
    assert browser.text("#shown").startswith("12 of 30 sites are shown")
    browser.picture(kept / "thirty-sites-phone.png")
    browser.run("document.getElementById('more-sites').click()")
    assert (30, "The first 12") == (len(rows(browser)), browser.text("#more-sites"))
    browser.run("document.getElementById('more-sites').click()")
    browser.look(**DESKTOP)
    browser.wait_for(lambda: 30 == len(rows(browser)))
    assert browser.run("return document.getElementById('more-sites').hidden")


def test_what_the_method_told(browser: Browser, served: Served, kept: Path) -> None:
    """The numbers of the picked round, a family in a row; nothing where a method tells nothing."""
    visit(browser, served.url)
    assert browser.run("return document.getElementById('told').hidden")
    first, last = served.status.curve
    told = {"overlap/mean": 0.123456, "overlap/most": 1.0, "mask_share": 12.0}
    served.status = replace(
        served.status, curve=(replace(first, diagnostics={"mask_share": 3}), replace(last, diagnostics=told))
    )
    browser.wait_for(lambda: not browser.run("return document.getElementById('told').hidden"))
    assert "round 2" in browser.text("#told-name")
    facts = "return [...document.getElementById('told-facts').children].map((fact) => fact.textContent)"
    assert ["overlap", "mean 0.123, most 1", "mask share", "12"] == browser.run(facts)
    browser.picture(kept / "told.png")
    browser.run("document.getElementById('pick').focus()")
    browser.press("ArrowLeft")
    browser.wait_for(lambda: ["mask share", "3"] == browser.run(facts))


def test_columns_too_slim_for_a_screen_are_one_shape(browser: Browser, served: Served) -> None:
    """Of 400 rounds each is half a pixel: drawn one by one they would be pale and flicker."""
    curve = tuple(Point(n, NOW - 400 + n, 1.0 + n % 5, 3, 3, 0, 0.5, 0.1, 0.4, 3, 2) for n in range(1, 401))
    served.status = under_way(curve=curve)
    visit(browser, served.url)
    shapes = "[...document.querySelectorAll('#chart-bytes svg > :is(rect, polygon)')]"
    kinds = f"return {shapes}.map((shape) => shape.tagName + shape.className.baseVal)"
    assert ["polygonup", "polygondown"] == browser.run(kinds)
    points = browser.run("return document.querySelector('#chart-bytes .down').getAttribute('points')")
    assert 1600 == len(points.split())
    assert 3 == len({point.split(",")[1] for point in points.split()} | {"0"})


def test_a_long_run(browser: Browser, served: Served, kept: Path) -> None:
    """Of very many rounds a part is told: the sum of bytes says that it is about so much."""
    numbers = sorted({1, 10_000, *range(1, 10_000, 26)})
    curve = tuple(
        Point(n, NOW - 10_000 + n, 1.0 + n % 5, 9, 9, 0, 1 - 0.9 * 0.999**n, 0.05, 0.8, 1_000_000, 500_000)
        for n in numbers
    )
    served.status = under_way(curve=curve)
    visit(browser, served.url)
    assert "about 15.0 GB" in browser.text("#tiles")
    assert "about 15.0 GB" in browser.run("return document.querySelector('#chart-total desc').textContent")
    browser.look(**PHONE)
    assert [] == overflow(browser)
    browser.picture(kept / "long-run.png")


def test_gone_and_back(browser: Browser, kept: Path) -> None:
    """When nobody answers the page says so and since when, keeps what it knew, asks on, and recovers by itself."""
    served = Served(under_way(), 0)
    with served.running():
        visit(browser, served.url)
        assert not browser.run("return document.getElementById('silence').checkVisibility()")
    browser.wait_for(
        lambda: re.match(r"The coordinator has not answered since \d\d:\d\d:\d\d", browser.text("#silence"))
    )
    assert browser.run("return document.getElementById('silence').checkVisibility()")
    assert ("No answer", "Last known: Running, round 3 of 9") == (
        browser.text("#state"),
        browser.text("#place"),
    )
    assert browser.run("return document.title").startswith("no answer")
    browser.picture(kept / "gone.png", whole=False)
    served.status = under_way(round=4)
    with served.running():
        browser.wait_for(lambda: "Round 4 of 9" == browser.text("#place"))
        assert not browser.run("return document.getElementById('silence').checkVisibility()")
        assert "running" == browser.run("return document.getElementById('hero').dataset.state")
        assert browser.run("return document.title") == "Running · 4/9 · dualfed"


def test_nobody_looks_nobody_asks(browser: Browser, served: Served) -> None:
    """A page in the background asks nothing; seen again it asks at once."""
    visit(browser, served.url)
    browser.run(HIDE, True)
    before = len(served.asked)
    browser.run("window.passed = 0; setTimeout(() => window.passed = 1, 5000)")
    browser.wait_for(lambda: browser.run("return window.passed"))
    assert len(served.asked) <= before + 1  # one may have been on its way
    before = len(served.asked)
    browser.run(HIDE, False)
    browser.wait_for(lambda: len(served.asked) > before, seconds=2)


# -- for everybody


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 360, 768, 1280, 2560])
def test_it_can_be_read(browser: Browser, served: Served, width: int, dark: bool) -> None:
    """No scrolling sideways; all words stand out from their ground; pictures, tables and controls have names."""
    served.status = under_way(words="the disk is full: make room")
    browser.look(width=width, height=800, dark=dark)
    visit(browser, served.url)
    assert [] == overflow(browser)
    assert [] == browser.run(FAINT)
    assert [] == browser.run(UNNAMED)
    assert 1 == browser.run("return document.querySelectorAll('h1').length")


def test_with_keys_and_by_ear(browser: Browser, served: Served) -> None:
    """The first key leads past all to the sites, headings sort by Enter, and what changes is said once."""
    visit(browser, served.url)
    browser.press("Tab")
    assert "To the sites" == browser.run("return document.activeElement.innerText")
    browser.run("document.querySelector('[data-by=phase]').focus()")
    browser.press("Enter")
    assert ["hospital_b", "hospital_a", "hospital_c"] == [row[0] for row in rows(browser)]
    spoken = "document.getElementById('spoken')"
    count = f"new MutationObserver(() => window.said++).observe({spoken}, {{childList: true}})"
    browser.run(f"window.said = 0; {count}")
    before = len(served.asked)
    browser.wait_for(lambda: len(served.asked) > before + 1)
    assert 0 == browser.run("return window.said")
    served.status = under_way(round=4)
    browser.wait_for(lambda: "round 4 of 9" in browser.text("#spoken"))
    assert 1 == browser.run("return window.said")


@pytest.mark.parametrize(
    ("status", "state", "sentence"),
    [
        ("gathering", "Gathering sites", "The run of 9 rounds begins by itself when all have come."),
        ("running", "Running", "Waiting for hospital_b, hospital_c."),
        ("finishing", "Finishing", "Not done yet: hospital_b, hospital_c."),
        ("finished", "Finished", "while the coordinator runs. It took 24 h 59 min."),
        ("stopped", "Stopped", "Ended by the operator after 2 rounds"),
        ("failed", "Failed", ""),
        ("resting", "resting", ""),
    ],
)
def test_states_in_big_words(
    browser: Browser, served: Served, kept: Path, status: str, state: str, sentence: str
) -> None:
    """For someone across the room, and one that this page does not know yet is said as it is."""
    served.status = under_way(status=status)
    visit(browser, served.url)
    assert (state, True) == (browser.text("#state"), sentence in browser.text("#saying"))
    assert 40 <= browser.run("return parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)")
    browser.picture(kept / f"state-{status}.png", whole=False)


def test_before_anybody_has_come(browser: Browser, served: Served) -> None:
    """The emptiest status is a page as well."""
    served.status = RunStatus("", "dualfed", "gathering", 0, 0, 0, now=NOW)
    visit(browser, served.url)
    assert ("Gathering sites", "0 sites are here") == (browser.text("#state"), browser.text("#place"))
    assert browser.text("#shown").startswith("No site has come yet.")
    assert [] == browser.complaints()


GATHERING = RunStatus("", "dualfed", "gathering", 0, 9, 0, now=NOW, spec={"sites": 2, "rounds": 9})
HERE = tuple(SiteStatus(name, "here", 0.0, "waiting") for name in NAMES[:2])


@pytest.mark.parametrize(
    "status",
    [
        GATHERING,
        replace(GATHERING, sites=HERE[:1]),
        replace(GATHERING, sites=HERE),
        replace(GATHERING, spec={"sites": 1}, rounds=1),
        replace(GATHERING, status="stopped", words="the operator stopped the run before it had begun"),
        under_way(),
        under_way(attempt=2, awaited=()),
        under_way(awaited=(*NAMES, "hospital_d")),
        under_way(opened=0, round=2),
        under_way(opened=0, round=2, sites=HERE),
        under_way(opened=0, round=0, curve=(), sites=HERE),
        under_way(opened=0, rounds=2),
        *(under_way(curve=(replace(under_way().curve[0], measured=number),)) for number in (1, 2)),
        under_way(status="finishing"),
        under_way(status="finishing", awaited=tuple(f"site-{n}" for n in range(14))),
        under_way(status="finished", rounds=1),
        under_way(status="finished", awaited=()),
        under_way(status="stopped"),
        under_way(status="stopped", awaited=()),
        under_way(status="failed", words="the disk is broken"),
    ],
)
def test_page_and_command_say_one_thing(browser: Browser, served: Served, status: RunStatus) -> None:
    """Where the run is, what is waited for and how good it was when, in the same words."""
    served.status = status
    visit(browser, served.url)
    place, sentence = tell_place(status), tell_sentence(status)
    assert place[:1].upper() + place[1:] == browser.text("#place")
    assert sentence == browser.text("#saying")[: len(sentence)]
    assert bool(sentence) == bool(browser.text("#saying"))
    assert "round 0 of" not in browser.text("#hero").lower()
    assert browser.run("return document.getElementById('score').hidden") == (not status.curve)
    for line in (line for line in tell_rounds(status.curve) if "accuracy" in line):
        assert f"{browser.text('#mean')} {browser.text('#meanwords')}" == line.partition(";")[0]


COUNTED = tuple(replace(line, counted=2 - place) for place, line in enumerate(under_way().sites))
ODD = (replace(COUNTED[0], warnings=("1 of 25 files is no image", HOSTILE)), *COUNTED[1:])


@pytest.mark.parametrize(
    ("status", "state", "troubles", "warnings"),
    [
        (under_way(sites=COUNTED, status="finished"), "failed", 1, 0),
        (under_way(sites=COUNTED), "running", 0, 0),
        (under_way(sites=COUNTED[:2], status="finished"), "finished", 0, 0),
        (under_way(status="finished"), "finished", 0, 0),
        (under_way(words="training diverges: in round 3"), "failed", 0, 0),
        (
            under_way(sites=ODD, warnings=("'Cat' (a) and 'cat' (b)",), refused={"z": HOSTILE}),
            "running",
            1,
            3,
        ),
        (replace(GATHERING, sites=HERE, words="the sites' data do not go together"), "failed", 0, 0),
    ],
    ids=["never", "under way", "all", "an older coordinator", "diverges", "odd", "does not begin"],
)
def test_what_must_not_be_overlooked(
    browser: Browser, served: Served, kept: Path, status: RunStatus, state: str, troubles: int, warnings: int
) -> None:
    """In red, and in the words of `pfl status`: sites that were never counted or not taken; what is odd about data."""
    served.status = status
    visit(browser, served.url)
    told = [list(tell(status)) for tell in (tell_troubles, tell_warnings)]
    assert [troubles, warnings] == [len(lines) for lines in told]
    assert told == [browser.texts(f"#{place} li") for place in ("troubles", "oddities")]
    assert [not lines for lines in told] == [
        browser.run(f"return document.getElementById('{place}').hidden") for place in ("troubles", "oddities")
    ]
    assert state == browser.run("return document.getElementById('hero').dataset.state")
    assert tell_sentence(status) in browser.text("#saying")
    assert [str(line.counted) for line in status.sites] == [row[5] for row in rows(browser)]
    assert None is browser.run("return window.hurt ?? null")
    for name, window in {"desktop": DESKTOP, "phone": PHONE}.items():
        browser.look(**window)
        assert [] == overflow(browser)
        browser.picture(kept / f"remarks-{state}-{troubles}{warnings}-{name}.png")


def test_while_it_gathers(browser: Browser, served: Served, kept: Path) -> None:
    """What is waited for in big letters, how many have come as a bar, and what is asked for: nothing is agreed yet."""
    served.status = replace(GATHERING, sites=HERE[:1])
    visit(browser, served.url)
    assert "1 of 2 sites are here" == browser.text("#place")
    way = "document.getElementById('way')"
    assert ["sites", "1", "2"] == browser.run(
        f"return ['label', 'valuenow', 'valuemax'].map((name) => {way}.getAttribute(`aria-${{name}}`))"
    )
    assert "50%" == browser.run(f"return {way}.firstElementChild.style.width")
    assert "What is asked for" == browser.text("#agreed-name")
    assert "Gathering sites · 1/2 · dualfed" == browser.run("return document.title")
    browser.picture(kept / "gathering.png")
    served.status = under_way()
    browser.wait_for(lambda: "What was agreed" == browser.text("#agreed-name"))
    assert "rounds" == browser.run(f"return {way}.getAttribute('aria-label')")


def test_nobody_foretells_an_end_without_sites(browser: Browser, served: Served) -> None:
    """As long as no round is under way, the pace of the last ones says nothing."""
    visit(browser, served.url)
    assert "pace" in browser.text("#saying")
    served.status = under_way(opened=0, round=2)
    browser.wait_for(lambda: "After round 2 of 9" == browser.text("#place"))
    assert "2 of 3" in browser.text("#saying")
    assert "pace" not in browser.text("#saying")


@pytest.mark.parametrize(
    ("changes", "foretold"),
    [
        ({}, "At the pace of the last rounds all will be done about 14:14."),
        ({"opened": NOW - 49}, "At the pace of the last rounds all will be done about 14:14."),
        ({"opened": NOW - 51}, ""),
        ({"opened": NOW - 180, "awaited": ()}, ""),
        ({"awaited": NAMES[2:]}, ""),
        ({"awaited": ()}, "At the pace of the last rounds all will be done about 14:14."),
    ],
    ids=["soon", "late", "too late", "being closed for long", "all away", "being closed"],
)
def test_a_round_that_hangs_has_no_pace(
    browser: Browser, served: Served, changes: dict[str, Any], foretold: str
) -> None:
    """Rounds end every ten seconds. One that is open five times as long, or waits for sites that are all away, tells
    nothing of the end; until then no round of those to come is quicker than the others were.
    """
    served.status = under_way(**changes)
    visit(browser, served.url)
    assert foretold == browser.text("#saying").partition(". ")[2]


@pytest.mark.parametrize("dark", [False, True])
def test_a_phase_looks_the_same_everywhere(browser: Browser, served: Served, dark: bool) -> None:
    """In the bar, in its key, at the sites and in the charts of bytes; and like no other phase."""
    served.status = under_way(
        phases=dict.fromkeys(PHASES, 1.0),
        sites=(
            SiteStatus("hospital_b", "here", 0.0, "", "working"),
            SiteStatus("hospital_c", "here", 0.0, "", "uploading"),
        ),
    )
    browser.look(**DESKTOP, dark=dark)
    visit(browser, served.url)
    look = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e)[arguments[1]])"
    parts = dict(zip(PHASES, browser.run(look, "#phases i", "backgroundColor"), strict=True))
    assert len(PHASES) == len(set(parts.values()))
    assert list(parts.values()) == browser.run(look, "#phases-key .mark", "backgroundColor")
    assert [parts["work"], parts["upload"]] == browser.run(look, "#roster .mark", "backgroundColor")
    assert {parts["download"]} == set(browser.run(look, "#chart-bytes rect.down", "fill"))
    assert {parts["upload"]} == set(browser.run(look, "#chart-bytes rect.up", "fill"))
    assert parts["work"] == browser.run(look, "#cohort .working", "backgroundColor")[0]


def test_times_are_the_viewers(browser: Browser, served: Served) -> None:
    """Moments in the viewer's zone, another day with its name; that this device's clock is wrong is said."""
    browser.command("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    visit(browser, served.url)
    assert ["23:13:15", "20 Sept, 22:13:20"] == [
        words.replace("Sep,", "Sept,") for words in browser.texts("#events time")
    ]
    assert "Asia/Tokyo" in browser.text("#clock")
    assert "This device's clock is" in browser.text("#clock")
    assert f"127.0.0.1:{served.port}, on this machine" in browser.text("#reached")


def test_a_round_is_picked_in_all_curves(browser: Browser, served: Served) -> None:
    """The slider goes back in time; the newest round is followed again at its end."""
    visit(browser, served.url)
    assert browser.text("#picked").startswith("2, closed")
    browser.run("document.getElementById('pick').focus()")
    browser.press("ArrowLeft")
    browser.wait_for(lambda: browser.text("#picked").startswith("1, closed"))
    for fact in ("50.0 % ± 5.0", "30.0 %", "2 of 3", "1.5 MB from", "2.0 MB to", "1.5 s"):
        assert fact in browser.text("#picked")
    assert 4 == browser.run("return document.querySelectorAll('svg .rule').length")
    browser.press("ArrowRight")
    served.status = replace(
        served.status, curve=(*served.status.curve, replace(served.status.curve[-1], round=3))
    )
    browser.wait_for(lambda: browser.text("#picked").startswith("3, closed"))

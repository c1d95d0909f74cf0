"""The status page as it is served: its rules, its files, and to whom a port of this machine alone answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pfl_common.spec import status_json
from pfl_common.spec.messages import Event, Point, RunStatus, SiteStatus
from pfl_server.status import page

STATUS = RunStatus(
    "run-1",
    "fedavg",
    "running",
    3,
    9,
    1,
    awaited=("hospital_a",),
    sites=(SiteStatus("hospital_a", "here", 0.1, "training", "working"),),
    spec={"settings": {"lr": 0.1, "batch": None}},
    curve=(
        Point(1, 20.0, 1.5, 2, 2, 0, accuracy=0.5, spread=0.1, worst_decile=0.4),
        Point(2, 22.0, 1.5, 2, 2, 0),
    ),
    events=(Event(20.0, "info", "round 1 closed"),),
)
PATHS = ["/", "/status.json", *(f"/static/{name}" for name in page.assets() if name != "index.html")]
WAYS_TO_MARKUP = (
    *(
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "setHTML",
        "createContextualFragment",
        "document.write",
    ),
    *("DOMParser", "srcdoc", "eval(", "Function(", ".cookie", "localStorage", "sessionStorage"),
)


def app() -> Starlette:
    async def measure(_: object) -> PlainTextResponse:
        return PlainTextResponse("numbers\n")

    others = [Route(path, measure) for path in page.FOR_ANYBODY]
    return Starlette(routes=[*others, *page.routes(lambda: STATUS)])


def visitor(*, loopback: bool, host: str = "localhost:7480") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=page.Guard(app(), loopback=loopback))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with visitor(loopback=True) as client:
        yield client


class Links(HTMLParser):
    """What a document refers to, and whether anything in it is a script or a style of its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.linked: set[str] = set()
        self.loaded: set[str] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href") and value is not None:
                (self.linked if tag == "a" else self.loaded).add(value)
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "style" or (tag == "script" and not dict(attrs).get("src")):
            self.inline.append(tag)


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
async def test_every_answer_has_the_pages_rules(client: httpx.AsyncClient, path: str) -> None:
    """Nothing from elsewhere runs or is asked, nothing is kept, guessed or framed, errors included."""
    answer = await client.get(path)
    assert page.HEADERS == {name: answer.headers.get(name) for name in page.HEADERS}
    assert "set-cookie" not in answer.headers


def test_what_the_rules_forbid() -> None:
    """All is forbidden but what comes from the same place, and no text becomes markup."""
    rules = dict(
        rule.strip().partition(" ")[::2] for rule in page.HEADERS["content-security-policy"].split(";")
    )
    assert "'none'" == rules.pop("default-src")
    assert ("'script'", "'none'") == (rules.pop("require-trusted-types-for"), rules.pop("trusted-types"))
    assert {"connect-src", "img-src", "script-src", "style-src"} == {
        n for n, v in rules.items() if v == "'self'"
    }
    assert {"base-uri", "form-action", "frame-ancestors"} == {n for n, v in rules.items() if v == "'none'"}
    assert {"'self'", "'none'"} == set(rules.values())


@pytest.mark.parametrize("path", PATHS)
async def test_looking_is_all_one_can_do(client: httpx.AsyncClient, path: str) -> None:
    """GET and HEAD are answered, and HEAD without a body; nothing else is."""
    assert [200, 200] == [(await client.request(method, path)).status_code for method in ("GET", "HEAD")]
    assert b"" == (await client.head(path)).content
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert 405 == (await client.request(method, path)).status_code, method


async def test_each_file_is_what_it_says(client: httpx.AsyncClient) -> None:
    """A browser that may not guess must be told the right kind."""
    kinds = {path: (await client.get(path)).headers["content-type"] for path in PATHS}
    wanted = {
        "": "text/html",
        "json": "application/json",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    assert {path: wanted[path.rpartition(".")[2].strip("/")] for path in PATHS} == {
        path: kind.partition(";")[0] for path, kind in kinds.items()
    }


async def test_what_is_referred_to_is_there_and_the_reverse(client: httpx.AsyncClient) -> None:
    """No file is missing and none is left over; no script or style stands in the document itself."""
    found = Links((await client.get("/")).text)
    assert [] == found.inline
    assert {"#sites", "metrics", "status.json"} == found.linked
    loaded = {link.removeprefix("static/") for link in found.loaded}
    known = page.assets()
    for name in [name for name in known if name.endswith(".js")]:
        loaded |= set(re.findall(r'from "\./([^"]+)"', known[name].decode()))
    assert set(known) - {"index.html"} == loaded


@pytest.mark.parametrize(("name", "content"), page.assets().items())
def test_no_file_knows_another_machine(name: str, content: bytes) -> None:
    """No address of anywhere else, in whatever form; the name of the SVG vocabulary is not one."""
    text = content.decode().replace("http://www.w3.org/2000/svg", "")
    assert [] == re.findall(r"https?://|wss?://|(?<![:\w])//\w|@import|url\(|data:|blob:", text)


@pytest.mark.parametrize(("name", "content"), page.assets().items())
def test_no_script_makes_markup_from_text(name: str, content: bytes) -> None:
    """Whatever a site says is put into the page as text: the ways to do otherwise are not used at all."""
    assert [] == [way for way in WAYS_TO_MARKUP if way in content.decode()]


async def test_the_facts_are_the_same_as_everywhere(client: httpx.AsyncClient) -> None:
    """What the page draws is what `pfl status --json` prints."""
    assert status_json.write(STATUS) == (await client.get("/status.json")).content


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:7480",
        "localhost.:1",
        "a.localhost",
        "127.0.0.1:7480",
        "127.8.8.8",
        "[::1]:7480",
        "[::1]",
    ],
)
async def test_own_names_are_answered(host: str) -> None:
    """Names that nobody can point elsewhere."""
    assert page.is_own_name(host)
    async with visitor(loopback=True) as client:
        assert 200 == (await client.get("/", headers={"host": host})).status_code


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:7480",
        "10.0.0.7:7480",
        "[::2]",
        "",
        "[::1].evil.example",
        "0.0.0.0",
    ],
)
async def test_a_foreign_name_is_not_answered_on_a_port_of_this_machine(host: str) -> None:
    """A page of the Web that points its own name here learns nothing; metrics name no site and are for anybody."""
    assert not page.is_own_name(host)
    async with visitor(loopback=True) as client:
        for path in PATHS:
            refused = await client.get(path, headers={"host": host})
            assert 421 == refused.status_code
            assert "hospital_a" not in refused.text
        for path in page.FOR_ANYBODY:
            assert 200 == (await client.get(path, headers={"host": host})).status_code


async def test_on_a_network_any_name_is_answered() -> None:
    """Who listens for others has chosen to be seen: in a cluster the name is whatever the service is called."""
    async with visitor(loopback=False, host="coordinator.federation.svc:7480") as client:
        assert [200] * len(PATHS) == [(await client.get(path)).status_code for path in PATHS]


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.1.2.3", False),
        ("fe80::1%eth0", False),
    ],
)
def test_which_addresses_are_of_this_machine_alone(address: str, near: bool) -> None:
    """What listens on all addresses is not."""
    assert near == page.is_loopback(address)

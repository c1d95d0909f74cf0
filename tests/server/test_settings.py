"""What an operator may choose, and what is no choice."""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from pathlib import Path

import pytest

from pfl_common.app.config import settle
from pfl_common.errors import SettingError
from pfl_common.spec.rules import MAJORITY, AskedRules
from pfl_common.spec.run import RunSpec
from pfl_server.settings import HERE_ONLY, ServerSettings


@pytest.mark.parametrize(
    "name, value",
    [
        ("sites", 0),
        ("rounds", 0),
        ("drop", 1.5),
        ("drop", -0.1),
        ("quorum", 0),
        ("quorum", 2),
        ("quorum", "half"),
        ("quorum", "50%"),
        ("quorum", True),
        ("round_seconds", 0),
        ("lease_seconds", -1),
        ("evaluate_every", 0),
        ("threads", 0),
        ("candidates", "everybody"),
        ("durability", "nothing"),
        ("rounds", "many"),
        *((port, number) for port in ("port", "enrol_port", "http_port") for number in (-1, 65536, 74430)),
    ],
)
def test_values_no_run_can_have(name: str, value: object) -> None:
    """The error names the setting and what it was."""
    with pytest.raises(SettingError, match=f"'{name}' is {value!r}"):
        settle(ServerSettings, {name: value}, what="pfl-server")


def test_text_becomes_numbers() -> None:
    """As a TOML file or the environment gives it."""
    chosen = settle(ServerSettings, {"rounds": "7", "quorum": "1", "state": "x"}, what="pfl-server")
    assert (7, 1.0, Path("x")) == (chosen.rounds, chosen.quorum, chosen.state)


def test_a_run_asks_for_a_majority_unless_told() -> None:
    """What an operator gets by saying nothing, and what a specification means that says nothing: the same."""
    assert (
        MAJORITY == ServerSettings().quorum == next(f.default for f in fields(RunSpec) if f.name == "quorum")
    )
    chosen = [
        settle(ServerSettings, {"quorum": said}, what="pfl-server").quorum for said in ("majority", ".5")
    ]
    assert [MAJORITY, 0.5] == chosen
    with pytest.raises(SettingError) as error:
        settle(ServerSettings, {"quorum": "half"}, what="pfl-server")
    assert "majority (more than half, at least two), or a share" in error.value.expected


def test_every_port_there_is() -> None:
    """0 takes a free one; the highest is one like the others."""
    chosen = settle(ServerSettings, {"port": 0, "enrol_port": 65535, "http_port": 1}, what="pfl-server")
    assert (0, 65535, 1) == (chosen.port, chosen.enrol_port, chosen.http_port)


def test_where_it_runs_is_no_part_of_the_run() -> None:
    """Ports and folders may change while a run lasts; everything else pins it."""
    part = ServerSettings(method="fedavg", port=1).run_part()
    assert set() == HERE_ONLY & part.keys()
    elsewhere = {"port": 2, "state": Path("elsewhere"), "durability": "process", "http_host": "0.0.0.0"}
    assert part == ServerSettings(method="fedavg", **elsewhere).run_part()
    assert part != ServerSettings(method="fedavg", rounds=31).run_part()


def test_the_rules_are_what_they_are_where_they_are_declared() -> None:
    """No default of a rule stands here a second time."""
    rules = AskedRules().told()
    assert rules == {name: getattr(ServerSettings(), name) for name in rules}
    assert rules == ServerSettings().told()
    assert not rules.keys() & HERE_ONLY, "a rule makes another run"


def test_what_was_asked_for_is_written_as_ever() -> None:
    """Byte for byte: where a rule is declared does not show in `asked.json`. What is newer comes last."""
    written = (
        '{"method": "dualfed", "sites": 2, "rounds": 30, "seed": 0, "participation": "1.0", "drop": 0.0, '
        '"candidates": "roster", "quorum": "majority", "round_seconds": 3600.0, "lease_seconds": 15.0, '
        '"evaluate_every": 1, "classes": [], "vocabulary": [], "length": 0, "largest_norm": 1000000000.0, '
        '"backbone": "", "image_size": 0, "pixel_range": "auto", "standardise": "agreed", '
        '"encoder_projector": false, "threads": 1, "set": {}'
    )
    assert written == json.dumps(ServerSettings().run_part())[: len(written)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("127.0.0.1",)),
        ({"host": "10.1.2.3"}, ("10.1.2.3",)),
        ({"host": "0.0.0.0"}, (platform.node(),)),
        ({"host": "::"}, (platform.node(),)),
        ({"host": "0.0.0.0", "advertise": "coordinator.example.org"}, ("coordinator.example.org",)),
        (
            {"host": "0.0.0.0", "advertise": "b.example.org, 10.0.0.7,b.example.org,"},
            ("b.example.org", "10.0.0.7"),
        ),
        ({"advertise": "[2001:db8::1],2001:db8::1"}, ("2001:db8::1",)),
        ({"host": "[::]"}, (platform.node(),)),
    ],
)
def test_the_names_sites_dial(given: dict[str, str], expected: tuple[str, ...]) -> None:
    """What is written into invitations and certificates can be reached from another machine."""
    assert expected == ServerSettings(**given).reachable_names


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("[::]", "::1"),
        ("::", "::1"),
        ("10.1.2.3", "10.1.2.3"),
    ],
)
def test_what_this_machine_dials_itself(host: str, expected: str) -> None:
    """Whatever is advertised: a name that others know need not be known here."""
    assert expected == ServerSettings(host=host, advertise="coordinator.invalid").local_name


def test_the_page_stays_on_this_machine() -> None:
    """Opening the ports for sites, which have TLS, does not open the one that has not."""
    assert "127.0.0.1" == ServerSettings(host="0.0.0.0", advertise="coordinator.example.org").http_name
    assert platform.node() == ServerSettings(http_host="0.0.0.0").http_name


@pytest.mark.parametrize("given", ["encoder.stage1, head", ["encoder.stage1", "head"]])
def test_names_of_what_stands_still(given: object) -> None:
    """As they are typed, and as a file has them."""
    assert ("encoder.stage1", "head") == settle(ServerSettings, {"freeze": given}, what="pfl-server").freeze
    assert () == settle(ServerSettings, {"freeze": ""}, what="pfl-server").freeze

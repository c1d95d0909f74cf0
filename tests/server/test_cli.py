"""`pfl-server`: what an operator may type, and what is said to what nobody can type."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any  # settings before they are checked

import pytest

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server import cli
from pfl_server.method_help.costs import measure
from pfl_server.method_help.explanation import read_words
from pfl_server.method_help.listing import shorten
from pfl_server.run import setting_checks
from pfl_server.run.kept_figures import NETWORKS, Network, read_kept
from pfl_server.run.specification import begin
from pfl_server.settings import ServerSettings
from pfl_server.store.state_folder import Runs
from tests.server.support.federation import DESCRIPTION
from tests.words import Spoken, check_clear, options_in, speak


def serve(*words: str | Path) -> Spoken:
    """The program with these words."""
    return speak(cli.main, *words)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a program that has to end go on, its state lies where the test's files lie."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user"))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What would be checked and served, instead of serving it; nothing comes from outside."""
    for name in [name for name in os.environ if name.startswith("PFL_")]:
        monkeypatch.delenv(name)
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(cli, "run_server", seen.append)
    yield seen


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (("--method", "dualfde"), ("no method 'dualfde'", "did you mean 'dualfed'?", "fedavg")),
        (("--set", "lamda=3"), ("dualfed has no setting 'lamda'", "did you mean 'lambda'?")),
        (("--set", "lr=quick"), ("dualfed: setting 'lr' is 'quick'", "expected: a number, more than 0")),
        (("--set", "lr"), ("--set got 'lr'", "name=value", "lambda=40")),
        (("--preset", "pac"), ("dualfed has no preset 'pac'", "did you mean 'pacs'?")),
        (
            ("--rounds", "0"),
            ("pfl-server: setting 'rounds' is 0", "expected: a whole number from 1 to 999999"),
        ),
        (
            ("--http-port", "70000"),
            ("setting 'http_port' is 70000", "expected: a whole number from 0 to 65535"),
        ),
        (("--rounds", "many"), ("--rounds is 'many'", "expected: a whole number", "see pfl-server --help")),
        (("--participation", "2"), ("participation is '2'", "a ratio above 0 and at most 1")),
        (("--backbone", "resnet81"), ("no backbone 'resnet81'", "did you mean 'resnet8'?")),
        (("--participation", "half"), ("participation is 'half'", "write 0.5")),
        (("--participation", "-0.5"), ("participation is '-0.5'", "above 0")),
        (("--drop", "1"), ("setting 'drop' is 1.0", "with 1 no site ever reports")),
        (("--drop", "5%"), ("--drop is '5%'", "expected: a number", "write 0.05")),
        (("--drop", "nan"), ("setting 'drop' is nan", "less than 1")),
        (("--set", "lr=-1"), ("dualfed: setting 'lr' is '-1'", "more than 0")),
        (("--set", "batch=1e9"), ("setting 'batch' is '1e9'", "65536")),
        (("--set", "epochs=0", "--method", "fedavg"), ("fedavg: setting 'epochs' is '0'", "from 1")),
        (("--image-size", "3"), ("'image_size' is 3", "8 or more, or 0")),
        (("--image-size", "9", "--backbone", "cnn"), ("'image_size' is 9", "cnn got", "at least 16x16")),
        (("--image-size", "99999"), ("'image_size' is 99999", "from 0 to 4096")),
        (("--encoder-projector",), ("dualfed, which has that projector", "leave --encoder-projector out")),
        (("--seed", "-1"), ("setting 'seed' is -1", "from 0 to 9007199254740991")),
        (("--quorum", "50%"), ("setting 'quorum' is '50%'", "write 0.5")),
        (("--rounds",), ("--rounds is given without a value", "see pfl-server --help")),
        (("fedavg",), ("fedavg without --list-methods", "--method NAME")),
        (("--list-methods", "fedavgg"), ("no method 'fedavgg'", "did you mean 'fedavg'?")),
        (("--list-methods", "local", "more"), ("nothing is expected where 'more' stands",)),
        (("--durability", "disk"), ("setting 'durability' is 'disk'", "'power' or 'process'")),
        (("--candidates", "all"), ("setting 'candidates' is 'all'", "'roster' or 'present'")),
        (("--methd", "fedavg"), ("there is no option --methd", "did you mean --method")),
    ],
)
def test_a_wrong_word_is_named_with_the_nearest_right_one(
    words: tuple[str, ...], phrases: tuple[str, ...]
) -> None:
    """A wrong name or type ends the program at once, before any site is waited for."""
    check_clear(serve(*words), 2, *phrases)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("rouds = 3\n", ("no setting 'rouds'", "did you mean 'rounds'?")),
        ("rounds = 'three'\n", ("setting 'rounds' is 'three'", "a whole number")),
        ("[set]\nlamda = 1\n", ("dualfed has no setting 'lamda'", "did you mean 'lambda'?")),
        ("set = 3\n", ("setting 'set' is 3", "settings by name")),
        ("[set]\nlr = -1\n", ("dualfed: setting 'lr' is -1", "more than 0")),
        ("[set]\nlr = nan\n", ("setting 'set.lr' is nan", "a finite number")),
        ("[set]\nepochs = true\n", ("dualfed: setting 'epochs' is True", "a whole number")),
        ("sites = true\n", ("setting 'sites' is True", "a whole number")),
        ("participation = 'half'\n", ("participation is 'half'", "write 0.5")),
        ("drop = 1\n", ("setting 'drop' is 1", "less than 1")),
        ("rounds 3\n", ("run.toml is not TOML", "line 1")),
        (None, ("run.toml cannot be read", "No such file")),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str | None, phrases: tuple[str, ...]) -> None:
    """The file is checked as the flags are."""
    file = tmp_path / "run.toml"
    if text is not None:
        file.write_text(text)
    check_clear(serve("--config", file), 2, *phrases)


def test_flags_win_over_the_file_and_the_file_over_the_environment(
    tmp_path: Path, settled: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting comes from the strongest place that names it."""
    file = tmp_path / "run.toml"
    file.write_text(
        "rounds = 2\nseed = 2\nencoder-projector = true\n[set]\nlambda = 2\nweight_decay = 0.2\nbatch = 2\n"
    )
    for name in ("ROUNDS", "SEED", "SITES"):
        monkeypatch.setenv(f"PFL_{name}", "3")
    serve("--config", file, "--rounds", "1", "--set", "lambda=1", "--preset", "pacs")
    own = settled[0].pop("set")
    assert {"rounds": 1, "seed": 2, "sites": "3", "encoder_projector": True} == settled[0]
    paper = {"lr": 0.01, "momentum": 0.5, "batch": 256, "epochs": 1, "tau": 0.2}
    assert paper | {"lambda": "1", "weight_decay": 0.2} == own, "--set, then the preset, then the file"


def test_a_preset_is_that_of_the_method_in_the_file(tmp_path: Path) -> None:
    """The method may be named in the file and the preset beside it."""
    file = tmp_path / "run.toml"
    file.write_text('method = "fedavg"\n')
    check_clear(serve("--config", file, "--preset", "pacs"), 2, "fedavg has no preset 'pacs'")


def test_the_help_says_what_is_taken_if_nothing_is_said() -> None:
    """As the settings have it: an operator sees for how many sites a coordinator waits, and where it listens."""
    said = serve("--help")
    by_itself = {
        "method": "dualfed",
        "sites": "2",
        "rounds": "30",
        "quorum": "majority",
        "lease_seconds": "15",
    }
    by_itself |= {"port": "7443", "enrol_port": "7444", "http_port": "7480", "state": "pfl-state"}
    shown = options_in(said)
    assert by_itself == {name: shown.get(name) for name in by_itself}
    assert said.code == 0
    assert "new_run" not in shown, "a switch that nobody turns on is off"


@pytest.mark.parametrize("width", ["80", "200"])
def test_the_table_of_methods_is_printed(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    """`--list-methods` names every method with what it does, what travels, what stays, whether sums suffice."""
    monkeypatch.setenv("COLUMNS", width)
    said = serve("--list-methods")
    assert (0, "") == (said.code, said.err)
    assert max(map(len, said.out.splitlines())) <= int(width)
    words = set(said.out.split())
    for name in methods.names():
        told = read_words(methods.load(name).doc)
        assert words >= {name if width == "200" else f"{name}:"}
        for text in (told.sentence.rstrip("."), shorten(told.travels), shorten(told.stays)):
            assert set(text.split()) <= {*words, *(word.rstrip(";.") for word in words)}, name
    no = [name for name in methods.names() if methods.load(name).shows]
    if width == "200":
        rows = [line.split() for line in said.out.splitlines() if line[1:2].isalpha()]
        found = {row[0]: row[-2:] for row in rows if row[0] in methods.names() and row[-1] in ("yes", "no")}
        assert no == [name for name, (sums, _) in found.items() if sums == "no"]
        assert {"fedproto", "local", *no} == {name for name, (_, robust) in found.items() if robust == "no"}
    else:
        assert len(no) + 2 == said.text.count("; --robust is not possible")
        assert len(no) == said.text.count("; sums do not suffice")
        assert len(methods.names()) - len(no) == said.text.count("; sums suffice")


def test_the_networks_are_listed() -> None:
    """`--list-backbones` names ours and torchvision's, for people and for programs."""
    said = serve("--list-backbones")
    assert (0, "") == (said.code, said.err)
    assert {"resnet8:", "torchvision:resnet18"} <= set(said.out.split())
    rows = json.loads(serve("--list-backbones", "--json").out)
    assert {"mlp", "torchvision:vit_b_16"} <= {row["backbone"] for row in rows}
    check_clear(serve("--list-backbones", "mlp"), 2, "mlp without --list-methods")


def test_a_method_has_few_lines_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are to be read in one go."""
    monkeypatch.setenv("COLUMNS", "100")
    assert len(serve("--list-methods").out.splitlines()) <= 5 * len(methods.names()) + 4


def test_a_wrong_word_of_the_environment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said where it stands: nobody has typed it."""
    monkeypatch.setenv("PFL_DROP", "1")
    check_clear(serve(), 2, "setting 'drop' is '1', in the environment as PFL_DROP", "less than 1")


def test_a_set_that_is_no_table_stays_wrong_beside_a_flag(tmp_path: Path) -> None:
    """Nothing is added to what is no table: the error is the file's."""
    file = tmp_path / "run.toml"
    file.write_text("set = 3\n")
    check_clear(serve("--config", file, "--set", "lr=1"), 2, "setting 'set' is 3")


def test_small_images_are_taken_by_a_backbone_that_takes_them(settled: list[dict[str, Any]]) -> None:
    """The network itself is asked."""
    setting_checks.check_words(ServerSettings(image_size=4, backbone="mlp"))
    setting_checks.check_words(ServerSettings(image_size=16, backbone="cnn"))
    setting_checks.check_words(ServerSettings(image_size=8))


@pytest.mark.parametrize("name", methods.names())
def test_which_methods_a_robust_rule_fits(name: str) -> None:
    """The table, the method's page, and what is refused in words, say the same."""
    reasons = {
        "local": "no site sends anything",
        "fedproto": "a site sends prototypes of its own classes alone",
        "fedcac": "single models",
        "fedamp": "single models",
        "fedfomo": "single models",
    }
    (row,) = [row for row in json.loads(serve("--list-methods", "--json").out) if row["method"] == name]
    settings = ServerSettings(method=name, robust="median")
    if name not in reasons:
        setting_checks.check_words(settings)
        assert "yes" == row["robust"]
        return
    with pytest.raises(SettingError, match=f"--robust median with the method {name}: .*{reasons[name]}"):
        setting_checks.check_words(settings)
    assert row["robust"].startswith("no: ")
    assert reasons[name] in row["robust"]


ROBUST = {
    "sums in the last round": (
        {"method": "spherefed", "robust": "krum", "set": {"calibrate": True}},
        "calibrate",
    ),
    "a share without a rule": ({"hostile_share": 0.3}, "--hostile-share 0.3 with --robust none"),
    "a share for a rule without one": ({"hostile_share": 0.3, "robust": "median"}, "with --robust median"),
    "a factor that leaves out the honest": ({"change_factor": 1.5}, "--change-factor 1.5"),
}


@pytest.mark.parametrize(("words", "said"), ROBUST.values(), ids=ROBUST.keys())
def test_rules_that_do_not_go_together(words: dict[str, Any], said: str) -> None:
    """Nothing is parsed and ignored."""
    with pytest.raises(SettingError, match=said):
        setting_checks.check_words(ServerSettings(**words))


def test_one_method_is_explained() -> None:
    """Every setting with its symbol in the paper, its default, what it takes and what it means; and the presets."""
    said = serve("--list-methods", "dualfed")
    assert (0, "") == (said.code, said.err)
    for words in (
        "DualFed: ",
        "Departures from the paper: Eq. 6 and 9",
        "lambda (λ) = 1: a number from 0 to 10000",
        "(Eq. 8)",
        "epochs (E) = 1",
        "train_mode = stagewise: stagewise | simultaneous",
        "--preset pacs sets lr=0.01, momentum=0.5, batch=256, epochs=1, lambda=40, tau=0.2",
    ):
        assert words in said.text
    settings = [name.removesuffix("_") for name in methods.load("dualfed").config.__dataclass_fields__]
    assert [] == [name for name in settings if f"{name} (" not in said.out and f"{name} = " not in said.out]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fedcp", "lambda (λ) = null: a number from 0 to 10000, or null"),
        ("fedcp", "mmd_bandwidths = 10,15,20,50: a number, or several with commas"),
        ("dualfed", "personal = false,true,true,false: 4 times true or false, with commas"),
        ("local", "aggregation = samples: nothing but samples"),
        ("fedfomo", "M = 5: a whole number from 1 to 100"),
    ],
)
def test_what_a_setting_takes(name: str, line: str) -> None:
    """Lists of numbers, what may be left to the method, a choice that is none, a symbol that is the name."""
    assert line in serve("--list-methods", name).text


@pytest.mark.parametrize("name", methods.names())
def test_a_method_is_explained_to_a_program(name: str) -> None:
    """As JSON: no setting without a meaning and what it takes, defaults that are taken when typed again."""
    told = json.loads(serve("--list-methods", name, "--json").out)
    method = methods.load(name)
    assert (name, dict(method.presets)) == (told["method"], told["presets"])
    assert all(row["means"] and row["takes"] for row in told["settings"])
    given = {row["name"]: row["default"] for row in told["settings"]}
    assert method.settle({}) == method.settle(given)
    every = {row["method"]: row for row in json.loads(serve("--list-methods", "--json").out)}
    words = read_words(method.doc)
    assert (words.travels, words.stays) == (every[name]["travels"], every[name]["stays"])
    assert (words.sentence, not method.shows) == (every[name]["sentence"], every[name]["sums_suffice"])


def test_a_method_is_explained_with_what_it_costs() -> None:
    """Its paragraphs, whether sums suffice, bytes, memory and arithmetic beside FedAvg on two networks."""
    said = serve("--explain", "fedper")
    assert (0, "") == (said.code, said.err)
    words = read_words(methods.load("fedper").doc)
    for text in (words.title, words.citation, *words.labelled.values()):
        assert " ".join(text.split()) in said.text
    assert "Sums suffice: yes" in said.text
    said = serve("--explain", "fedcac")
    assert (0, "") == (said.code, said.err)
    words = read_words(methods.load("fedcac").doc)
    for text in (words.title, words.citation, words.rule, *words.departures.values()):
        assert " ".join(text.split()) in said.text
    assert f"Sums suffice: no: {methods.load('fedcac').shows.rstrip('.')}" in said.text
    kept = read_kept()[NETWORKS[0].words]
    assert f"{kept['fedcac'].down:,}" in said.text
    assert "2.000" in said.text, "two models come down"
    assert all(network.words.split()[0] in said.text for network in NETWORKS)


@pytest.mark.parametrize(("width", "tables"), [("80", 2), ("140", 1)])
def test_figures_fit_into_a_terminal(monkeypatch: pytest.MonkeyPatch, width: str, tables: int) -> None:
    """Networks stand side by side where there is room, else below each other; no head is broken."""
    monkeypatch.setenv("COLUMNS", width)
    lines = serve("--explain", "fedcp").out.splitlines()
    assert max(map(len, lines)) <= int(width)
    heads = [line for line in lines if line.startswith("a round costs one site")]
    assert tables == len(heads)
    assert all(network.words in "\n".join(heads) for network in NETWORKS)


def test_a_method_is_explained_on_a_network_and_with_settings_of_ones_own() -> None:
    """They are measured now: a merged model is one, and a network without convolutions has its own bytes."""
    said = serve("--explain", "fedcac", "--backbone", "mlp", "--set", "merge_at=server")
    assert 0 == said.code
    (row,) = (line.split() for line in said.out.splitlines() if line.startswith("down, bytes"))
    plain = measure("fedavg", Network("mlp"))
    assert f"{plain.down:,}" == row[-2]
    assert "1.000" == row[-1]
    assert "With merge_at=server." in said.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--explain", "fedavgg"), "no method 'fedavgg'"),
        (("--explain", "fedavg", "--backbone", "cnnn"), "no backbone 'cnnn'"),
        (("--explain", "fedavg", "--set", "lr=x"), "lr"),
    ],
)
def test_a_wrong_word_beside_explain_is_refused(words: tuple[str, ...], told: str) -> None:
    """With what there is instead."""
    check_clear(serve(*words), 2, told)


def test_the_version_is_told() -> None:
    """Of the product, and of what decides a run's bits."""
    said = serve("--version")
    assert 0 == said.code
    assert said.out.startswith(f"pfl-server {version('pfl-net')} (torch {version('torch')}")


def test_a_state_folder_that_cannot_be(tmp_path: Path) -> None:
    """A place where no folder can be made is named with what to do."""
    (tmp_path / "file").touch()
    said = serve("--state", tmp_path / "file" / "state")
    check_clear(said, 4, f"the state folder {tmp_path}/file/state cannot be made", "--state")


def test_it_seldom_looks_for_garbage_in_all_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before it serves anybody."""
    looked = list[None]()
    monkeypatch.setattr(cli, "look_through_all_seldom", lambda: looked.append(None))
    (tmp_path / "file").touch()
    serve("--state", tmp_path / "file" / "state")
    assert [None] == looked


def test_a_second_coordinator_on_one_state_folder(tmp_path: Path) -> None:
    """It refuses to start as long as the first one lives."""
    first = Runs(tmp_path, OpenEnvelopes())
    try:
        check_clear(
            serve("--state", tmp_path),
            4,
            f"another coordinator is using the state folder {tmp_path}",
            "systemctl stop",
            "--state",
        )
    finally:
        first.close()


def test_other_settings_for_an_unfinished_run(tmp_path: Path) -> None:
    """Before any port is open the program ends and names what differs and the way out; the folder stays free."""
    given = {"method": "fedavg", "backbone": "mlp", "rounds": 3, "state": tmp_path}
    runs = Runs(tmp_path, OpenEnvelopes())
    begin(runs, ServerSettings(**given), {"a": DESCRIPTION, "b": DESCRIPTION}).journal.close()
    runs.close()
    said = serve("--state", tmp_path, "--method", "fedavg", "--backbone", "mlp", "--rounds", "9")
    check_clear(said, 4, "is unfinished", "rounds was 3, now 9", "--new-run")
    assert "listening" not in said.text
    Runs(tmp_path, OpenEnvelopes()).close()


def test_a_list_of_strangers_is_refused_when_the_sites_are_known(tmp_path: Path) -> None:
    """Nothing is begun, and the same folder serves the right list."""
    given = {"method": "fedavg", "backbone": "mlp", "rounds": 3, "state": tmp_path}
    sites = {"hospital_a": DESCRIPTION, "hospital_b": DESCRIPTION}
    runs = Runs(tmp_path, OpenEnvelopes())
    with pytest.raises(SettingError, match="participation names hospital_c") as caught:
        begin(runs, ServerSettings(**given, participation="hospital_a,hospital_c"), sites)
    assert "did you mean 'hospital_b'? known: hospital_a, hospital_b" == caught.value.expected
    begin(runs, ServerSettings(**given, participation="hospital_a,hospital_b"), sites).journal.close()
    runs.close()


def test_a_place_where_sites_cannot_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose state directory cannot be written is told so, and the state folder is free again."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    ports = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
    said = serve("--state", tmp_path / "state", *ports)
    check_clear(said, 4, f"no file can be left in {tmp_path}/file/pfl/coordinators", "XDG_STATE_HOME")
    Runs(tmp_path / "state", OpenEnvelopes()).close()

"""The shape of the house: what may lie where, how it is called, and how long it may be."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

import pytest

from tests.house import survey
from tests.house.skeleton import PACKAGES, TOP, read_settings

SCRIPTS = (
    ".ci/run",
    "deploy/demo",
    "deploy/environment",
    "deploy/kubernetes/rules",
    "tests/containers",
    "tests/kubernetes",
    "tests/run",
)
IMPORTED_AS = {
    "grpcio": "grpc",
    "pillow": "PIL",
    "protobuf": "google",
    "python-pkcs11": "pkcs11",
    "pyzmq": "zmq",
    "scikit-learn": "sklearn",
}


def test_the_top_level_holds_its_names_and_no_other() -> None:
    """The customer fixed the top level."""
    assert set() == survey.odd_top_level(survey.list_files())


def test_an_odd_name_at_the_top_is_seen() -> None:
    """The check above is able to fail."""
    files = [PurePath("docs/guide.md"), PurePath("server/pfl_server/cli.py"), PurePath(".ci/run")]
    assert {"docs"} == survey.odd_top_level(files)


def test_nothing_is_called_after_nothing() -> None:
    """No utils, helpers, misc or manager: a file is called after what it does."""
    assert set() == survey.odd_names(survey.list_files())


@pytest.mark.parametrize(
    "name",
    ["common/pfl_common/utils.py", "tests/helpers/a.py", "server/pfl_server/round_manager.py", "a/misc.md"],
)
def test_a_name_after_nothing_is_seen(name: str) -> None:
    """The check above is able to fail."""
    assert {name} == survey.odd_names([PurePath(name), PurePath("server/pfl_server/management.py")])


def test_no_file_is_too_long() -> None:
    """A file past 400 lines wants to be two."""
    lengths = {str(path): len(survey.read(path).splitlines()) for path in survey.list_modules()}
    assert {} == {path: length for path, length in lengths.items() if length > survey.LONGEST_FILE}


def test_no_function_is_too_long() -> None:
    """A function past 45 lines wants to be told in steps."""
    found = {str(path): survey.long_functions(survey.read(path)) for path in survey.list_modules()}
    assert {} == {path: functions for path, functions in found.items() if functions}


def test_a_long_function_is_seen() -> None:
    """The check above is able to fail, one line past the limit and not before."""
    body = "    pass\n"
    assert {} == survey.long_functions("def ask():\n" + body * 44)
    assert {"ask": 46} == survey.long_functions("async def ask():\n" + body * 45)


def test_a_method_is_read_at_one_sitting() -> None:
    """What a method does takes at most 120 lines; what it is set by, called, and tells stands around them."""
    folder = PurePath("common/pfl_common/methods")
    methods = [path for path in survey.list_modules() if path.parent == folder and path.stem != "__init__"]
    lengths = {path.stem: survey.measure_algorithm(survey.read(path)) for path in methods}
    assert 22 == len(lengths)
    assert {} == {name: lines for name, lines in lengths.items() if lines > survey.LONGEST_ALGORITHM}


def test_a_long_method_is_seen() -> None:
    """The check above is able to fail: it counts what is done, in classes and functions alike."""
    config = 'class Config:\n    lr: float = 0.1\n    """The rate."""\n'
    client = 'class Client:\n    """Learn."""\n    head: object\n\n    # Twice.\n    def learn(self):\n        pass\n'
    assert 5 == survey.measure_algorithm(config + client + "def start():\n    pass\n" + "PRESETS = {}\n")


@pytest.mark.parametrize("room", survey.ROOMS)
def test_a_room_says_what_it_is(room: str) -> None:
    """Each room has a README of one page."""
    assert (TOP / room / "README.md").is_file(), f"{room}/README.md is missing: say what lives here and why"


@pytest.mark.parametrize(("package", "room"), PACKAGES.items())
def test_a_package_carries_its_types(package: str, room: str) -> None:
    """Each package tells type checkers that its annotations are meant."""
    assert (TOP / room / package / "py.typed").is_file(), (
        f"{room}/{package}/py.typed is missing: make an empty file"
    )


def test_every_folder_of_a_package_is_a_package() -> None:
    """A folder without its first file is left out of the distribution, which only its user notices."""
    folders = {path.parent for path in survey.list_modules()}
    assert set() == {str(folder) for folder in folders if not (TOP / folder / "__init__.py").is_file()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_run(script: str) -> None:
    """The commands of the README start without `bash` in front."""
    assert (TOP / script).is_file(), f"{script} is missing"
    assert (TOP / script).stat().st_mode & 0o111, f"{script} is not executable: chmod +x {script}"


def test_what_is_imported_is_declared() -> None:
    """A user who installs the distribution gets all that our packages import, at once or as an extra."""
    project = read_settings()["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in extras.keys() - {"dev"} for line in extras[name])]
    declared = {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in wanted}
    known = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in declared}
    imported = {name for path in survey.list_modules() for name in survey.foreign_imports(survey.read(path))}
    assert set() == imported - known - set(PACKAGES) - sys.stdlib_module_names


def test_what_is_declared_is_locked() -> None:
    """Each dependency, extras included, has its one version in the lock."""
    project = read_settings()["project"]
    ranges = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    declared = {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in ranges}
    lines = (TOP / "deploy" / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in pins), "a line of the lock is not of the form name==version"
    locked = {name.lower().replace("_", "-") for name, _ in pins}
    assert set() == declared - locked

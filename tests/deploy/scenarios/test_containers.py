"""The Dockerfile and what it brings: read for their meaning; `tests/containers` really builds and runs them."""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from pfl_client.settings import ClientSettings
from pfl_server.settings import ServerSettings
from tests.deploy.containers_built.images import pip_words
from tests.deploy.containers_read import dockerfile
from tests.deploy.support import commands

TOP = Path(__file__).parents[3]
FOLDER = TOP / "deploy" / "docker"
FILE = dockerfile.read((FOLDER / "Dockerfile").read_text())
TARGETS = ("coordinator", "site", "site-cuda")
PROGRAMS = {"coordinator": "pfl-server", "site": "pfl-client", "site-cuda": "pfl-client"}


def loaded(name: str) -> ModuleType:
    """A program that lies in the folder, as a module."""
    loader = SourceFileLoader(f"docker_{name}", str(FOLDER / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_number_that_is_not_root(target: str) -> None:
    """Kubernetes can see from the image alone that its user is not root."""
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", FILE.last(target, "USER"))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_starts_its_program_with_options_that_exist(target: str) -> None:
    """An option that was renamed would end the container at its start."""
    program, *words = FILE.words(target, "ENTRYPOINT")
    assert PROGRAMS[target] == program
    assert set() == commands.unknown_options(program, words)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_sets_only_settings_that_exist(target: str) -> None:
    """A variable nobody reads would be a setting that never applies."""
    given = {name for name in FILE.pairs(target, "ENV") if name.startswith("PFL_")}
    assert set() == given - commands.variables(PROGRAMS[target])


def test_an_unknown_option_is_seen() -> None:
    """The checks above are able to fail."""
    assert {"--stat"} == commands.unknown_options("pfl-server", ["--stat", "x", "--port=1"])
    assert "PFL_PORTS" not in commands.variables("pfl-server")


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_writes_to_its_volume_alone(target: str) -> None:
    """With a read-only root everything a program keeps has to lie in the volume."""
    environment = FILE.pairs(target, "ENV")
    volume = Path("/var/lib/pfl")
    for name in ("HOME", "XDG_STATE_HOME", "PFL_STATE"):
        assert Path(environment[name]).is_relative_to(volume), name
    assert "1" == environment["PYTHONDONTWRITEBYTECODE"]
    made = [step for stage in FILE.line_of(target) for step in stage.all("RUN") if str(volume) in step]
    assert FILE.last(target, "USER") in " ".join(made)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_opens_the_ports_its_program_listens_on(target: str) -> None:
    """EXPOSE is what people and tools go by."""
    environment = FILE.pairs(target, "ENV")
    ports = {int(port) for port in FILE.last(target, "EXPOSE").split()}
    own = {int(environment["PFL_HTTP_PORT"])}
    if target == "coordinator":
        own |= {ServerSettings.port, ServerSettings.enrol_port}
        assert {ServerSettings.http_port} < own
    assert own == ports
    listens = {"PFL_HTTP_HOST", "PFL_HOST"} if target == "coordinator" else {"PFL_HTTP_HOST"}
    assert listens == {name for name, value in environment.items() if value == "0.0.0.0"}


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_can_be_asked_for_its_health_and_stopped(target: str) -> None:
    """The check is a program that lies in the image; the signal is the one both programs drain at."""
    python, script = FILE.words(target, "HEALTHCHECK")
    assert python.startswith(FILE.pairs(target, "ENV")["PATH"].split(":")[0])
    assert any(f"deploy/docker/{Path(script).name}" in step for step in FILE.stages["runtime"].all("COPY"))
    assert "SIGTERM" == FILE.last(target, "STOPSIGNAL")


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_says_what_it_is(target: str) -> None:
    """Labels of the Open Container Initiative, each once."""
    said = {name.removeprefix("org.opencontainers.image.") for name in FILE.pairs(target, "LABEL")}
    assert {"title", "description", "licenses", "vendor", "version", "revision"} == said


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_of_pips_settings_ends_in_an_image(target: str) -> None:
    """An index with a password in it would be in every copy of the image."""
    ours = [rest for stage in FILE.line_of(target) for _, rest in stage.steps]
    assert [] == [step for step in ours if "PIP_" in step or "TORCH_INDEX" in step]
    assert "packages" not in [stage.name for stage in FILE.line_of(target)]


def test_only_the_base_comes_from_elsewhere() -> None:
    """Any base can be put in its place, and none names a host."""
    outside = {stage.base for stage in FILE.stages.values()} - set(FILE.stages)
    assert {"${BASE}"} == outside
    assert "/" not in FILE.arguments["BASE"]
    assert "cpu" == FILE.arguments["VARIANT"]


def test_what_is_copied_is_there_and_let_through() -> None:
    """The builder's view of the project is what .dockerignore lets through, and no more."""
    lines = (TOP / ".dockerignore").read_text().splitlines()
    through = [line[1:] for line in lines if line.startswith("!")]
    assert [] == [name for name in through if not (TOP / name).exists()]
    copied = [word for stage in FILE.stages.values() for step in stage.all("COPY") for word in sources(step)]
    assert [] == [name for name in copied if not any(fnmatch.fnmatch(name, f"{way}*") for way in through)]
    assert "*" == next(line for line in lines if not line.startswith("#"))


def sources(step: str) -> list[str]:
    """What a COPY takes from the project."""
    words = step.split()
    if any(word.startswith("--from") for word in words):
        return []
    return [word for word in words[:-1] if not word.startswith("--") and word != "."]


def test_the_list_of_packages_is_the_projects() -> None:
    """What an image installs follows pyproject.toml."""
    listed = loaded("packages").named_packages(TOP / "pyproject.toml")
    assert any(line.startswith("torch>") for line in listed)
    assert any(line.startswith("grpcio") for line in listed)
    assert any(line.startswith("torchvision") for line in listed), "a run may name one of its networks"
    assert [] == [line for line in listed if line.startswith(("pytest", "matplotlib", "pyarrow"))]


def test_an_image_can_have_optional_parts() -> None:
    """Those that are named, and no other; a name that no part has ends the build."""
    listed = loaded("packages").named_packages
    plain, more = listed(TOP / "pyproject.toml"), listed(TOP / "pyproject.toml", "parquet export")
    assert plain == more[: len(plain)]
    assert {"pyarrow", "onnx"} <= {line.partition(">")[0] for line in more[len(plain) :]}
    with pytest.raises(SystemExit, match=r"EXTRAS names 'parket', expected some of: .*parquet"):
        listed(TOP / "pyproject.toml", "parket")
    assert any('packages list "$EXTRAS"' in step for step in FILE.stages["packages"].all("RUN"))


def test_another_build_of_torch_than_was_meant_ends_the_build() -> None:
    """Nobody gets five gigabytes of CUDA, or a GPU image without it, by oversight."""
    fault = loaded("packages").fault_of
    assert ("", "") == (fault("cpu", None), fault("cuda", "13.0"))
    assert "TORCH_INDEX" in fault("cpu", "13.0")
    assert "TORCH_INDEX" in fault("cuda", None)
    assert "gpu" in fault("gpu", None)


def test_trimming_leaves_what_torch_needs_to_start(tmp_path: Path) -> None:
    """Headers and test programs go; the one tool that torch starts with stays."""
    for name in (
        "bin/torch_shm_manager",
        "bin/test_jit",
        "include/a/b.h",
        "test/c",
        "lib/libtorch.so",
        "nn/x.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    loaded("packages").trim(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"bin/torch_shm_manager", "lib/libtorch.so", "nn/x.py"} == left


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A program that answers everything with this status; gives its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield str(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_health_check_believes_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well is well even behind a proxy's settings; ill, and nobody there, are not."""
    is_healthy = loaded("healthy").is_healthy
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with answering(200) as port:
        assert is_healthy(port)
    assert not is_healthy(port)
    with answering(503) as port:
        assert not is_healthy(port)


def test_the_callers_pip_settings_reach_the_build(tmp_path: Path) -> None:
    """Files of this machine that they name are made reachable, a file of settings goes as a secret."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nextra-index-url = file://{wheels}\n")
    words = list(pip_words({"PIP_INDEX_URL": "https://p.example/simple", "PIP_CONFIG_FILE": str(settings)}))
    assert "PIP_INDEX_URL=https://p.example/simple" in words
    assert f"{wheels}:{wheels}:ro" in words
    assert f"id=pip.conf,src={settings}" in words
    assert [] == list(pip_words({}))


def test_the_site_image_reads_its_data_where_they_are_mounted() -> None:
    """/data is a setting of the program, not a habit of the manifests."""
    assert "data" in ClientSettings.__dataclass_fields__
    assert "/data" == FILE.pairs("site", "ENV")["PFL_DATA"]

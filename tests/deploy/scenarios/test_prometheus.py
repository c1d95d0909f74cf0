"""What Prometheus and Alertmanager are given, checked by their own tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pfl_server.settings import ServerSettings
from tests.deploy.support.tools import tool
from tests.deploy.support.watching import ALERTS, PROMETHEUS, RULE_TESTS, RULES, alerts


def check(program: str, package: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Let a tool look at files."""
    command = [tool(program, package), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Prometheus's own tool."""
    return check("promtool", "prometheus", *words)


def test_rules_are_rules() -> None:
    """Every recording rule and alert is one that Prometheus takes."""
    told = promtool("check", "rules", RULES, ALERTS)
    assert 0 == told.returncode, told.stderr


def test_the_configuration_is_one() -> None:
    """Prometheus takes the configuration, and finds rules and targets where it says."""
    told = promtool("check", "config", PROMETHEUS / "prometheus.yaml")
    assert 0 == told.returncode, told.stderr
    assert "2 rule files found" in told.stdout


def test_alertmanager_takes_its_configuration() -> None:
    """Alertmanager takes the example as it stands."""
    told = check("amtool", "prometheus-alertmanager", "check-config", PROMETHEUS / "alertmanager.yaml")
    assert 0 == told.returncode, told.stderr


def test_nobody_outside_is_told() -> None:
    """No file names an address that is not this machine's."""
    for file in PROMETHEUS.rglob("*.yaml"):
        hosts = re.findall(r"(?:https?://|[\"'])([\w.-]+):\d+[\"'/]", file.read_text())
        assert set() == {host for host in hosts if host != "127.0.0.1" and 1 < len(host)}, file


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_keep_quiet(file: Path) -> None:
    """Each alert fires on the numbers it is meant for, and not on those beside them."""
    told = promtool("test", "rules", file)
    assert 0 == told.returncode, told.stdout + told.stderr


@pytest.mark.parametrize("instead", ["vector(0) == 1", "vector(1)"], ids=["deaf", "rash"])
def test_an_alert_that_is_wrong_is_found(instead: str, tmp_path: Path) -> None:
    """Alerts that never fire, or always do, all fail tests of their own: none is without them."""
    rules = shutil.copytree(PROMETHEUS / "rules", tmp_path / "rules") / ALERTS.name
    spoilt, count = re.subn(
        r"(- alert: \w+\n +expr: ).*?(?=\n +(?:for|labels):)",
        rf"\g<1>{instead}",
        rules.read_text(),
        flags=re.DOTALL,
    )
    assert len(alerts()) == count
    rules.write_text(spoilt)
    told = promtool("test", "rules", *sorted((rules.parent / "tests").glob("*.yaml")))
    assert set(alerts()) == set(re.findall(r"alertname: (\w+),", told.stdout + told.stderr))


def test_a_first_round_may_take_half_of_its_deadline() -> None:
    """What is assumed of a run's first round is half of the deadline it has unless another one is set."""
    deadline = ServerSettings.__dataclass_fields__["round_seconds"].default
    assert f"0 * pfl_round_opened_timestamp_seconds + {deadline / 2:.0f})" in ALERTS.read_text()


def test_alerts_lead_to_wherever_the_runbook_is(tmp_path: Path) -> None:
    """For a cluster, each alert's section is a link to the place that was named, and nothing else differs."""
    script, address = PROMETHEUS.parent / "kubernetes" / "rules", "https://wiki.example.org/pfl?page=a&b|c"
    plain, linked = tmp_path / "plain", tmp_path / "linked"
    for folder, words in ((plain, []), (linked, ["--runbook", address])):
        folder.mkdir()
        subprocess.run([script, *words, folder], check=True, timeout=30)
    for file in sorted(plain.iterdir()):
        wanted = re.sub(r"\brunbook: runbook.md#", f"runbook_url: {address}#", file.read_text())
        assert wanted == (linked / file.name).read_text()
    assert len(alerts()) == (linked / "pfl-alerts.yaml").read_text().count(f" runbook_url: {address}#pfl")


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_to_do(name: str) -> None:
    """Each has a severity, words, and a section of the runbook with what was seen, what it means and steps."""
    text = ALERTS.read_text().partition(f"- alert: {name}\n")[2].partition("- alert: ")[0]
    assert re.search(r"severity: (warning|critical)}", text)
    for word in ("summary: ", "description: ", f"runbook: runbook.md#{name.lower()}\n"):
        assert word in text
    section = (PROMETHEUS / "runbook.md").read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for word in ("**Seen**: ", "**Means**: ", "\n1. "):
        assert word in section

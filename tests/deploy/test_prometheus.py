"""What Prometheus and Alertmanager are given, checked by their own tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.tools import tool
from tests.deploy.watching import ALERTS, PROMETHEUS, RULE_TESTS, RULES, alerts


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

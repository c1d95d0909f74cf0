"""Names of data files are shown on a terminal and nowhere else."""

from __future__ import annotations

import io

import pytest
import structlog

from pfl_common.app import logs, program
from pfl_common.errors import DataError

NAME = "train/cat/patient-smith.png"


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """As it was made."""
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "style", "shown"), [(True, "text", True), (False, "text", False), (True, "json", False)]
)
def test_a_log_shows_names_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, style: str, shown: bool
) -> None:
    """A log that goes to a file, or to another program as JSON, has the position only."""
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)
    try:
        logs.configure(style)
        structlog.get_logger().warning(
            "a file is left out", position="file 3 of cat", **{logs.HERE_ALONE: {"file": NAME}}
        )
    finally:
        structlog.reset_defaults()
    assert "file 3 of cat" in screen.getvalue()
    assert shown == (NAME in screen.getvalue())
    assert logs.HERE_ALONE not in screen.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_names_its_file_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """The words are the same; the name comes with them only where a person reads them."""
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)

    def fail(**_: object) -> None:
        raise DataError("file 3 of cat is no image", advice="repair it", file=NAME)

    with pytest.raises(SystemExit):
        program.run("pfl-client", fail)
    assert "what to do: repair it" in screen.getvalue()
    assert terminal == (NAME in screen.getvalue())

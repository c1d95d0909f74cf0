"""A site's settings, each with a stated default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pfl_common.app.config import STRICT, Port, Why
from pfl_common.errors import SettingError

WAIT_SECONDS = 60.0
"""For who starts a site and its coordinator in two terminals, in either order."""


@dataclass(frozen=True, config=STRICT)
class ClientSettings:
    """The settings of one site: where its data lie and which coordinator it belongs to."""

    data: Path | None = None
    """The data folder; only read."""
    join: Path | None = None
    """An invitation written by `pfl invite`; not needed on the coordinator's own machine."""
    server: str | None = None
    """Which coordinator of this machine, when there are several: its address or id."""
    name: str = ""
    """The site's name; empty: the data folder's."""
    state: Path | None = None
    """Where the site keeps its own state; empty: the user's state directory."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""
    wait: Annotated[float | None, Field(ge=0, le=2_592_000), Why("30 days are the most")] = None
    """Seconds to wait at the start for a coordinator that is not there yet; empty: 60 on its own machine, and none with
    an invitation.
    """
    trainer: Literal["warm", "per-task"] = "warm"
    """Keep the trainer between tasks, or start one for each and give its memory back."""
    stay: bool = False
    """After a run wait for the coordinator's next one; for services that are started again when they end."""
    personalize_only: bool = False
    """Take part in no round: fetch the shared state, fit this site's own part to it, end with its model."""
    tell_diagnostics: bool = True
    """Tell the coordinator, beside the scores, what the method measures of its training (loss, sparsity, ...), to be
    summed over sites.
    """
    strict_data: bool = False
    """Take odd data (images of mixed size, one class only) for an error."""
    http_host: str = "127.0.0.1"
    """Address of metrics and health."""
    http_port: Port = 0
    """Port of metrics and health; 0 takes a free one."""
    log_format: str = "text"
    """How the log is written to standard error: text (auto is the same; coloured on a terminal) or json."""

    def __post_init__(self) -> None:
        if self.personalize_only and self.stay:
            raise SettingError(
                "--personalize-only with --stay",
                expected="one of them: a site that only fits its own part ends with its model and waits for no run",
                advice="leave --stay out",
            )

    @property
    def wait_seconds(self) -> float:
        """How long to wait at the start for the coordinator."""
        if self.wait is not None:
            return self.wait
        return WAIT_SECONDS if self.join is None else 0.0

    @property
    def state_folder(self) -> Path:
        """The folder for all sites of this user."""
        if self.state is not None:
            return self.state
        given = os.environ.get("XDG_STATE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
        return base / "pfl" / "sites"

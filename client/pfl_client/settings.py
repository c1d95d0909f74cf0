"""A site's settings, each with a stated default."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from pfl_common.app.config import STRICT, Port, Why, layered, settle
from pfl_common.errors import SettingError

SYSTEM = "system"
WAIT_SECONDS = 60.0
"""For who starts a site and its coordinator in two terminals, in either order."""

MOST_BAD = 0.1
"""One in ten: a few files of any archive are damaged; many of them are a disk or a format that is not understood."""


SMALLEST_LIMIT = 512 << 20
"""Of a trainer's memory: the libraries alone take a third of it."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def read_size(text: str) -> int:
    """Bytes of a size such as 2G, 512M or 1.5GiB."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError("a size such as 2G or 512M")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _check_limit(text: str) -> str:
    if text and read_size(text) < SMALLEST_LIMIT:
        raise ValueError("512M or more, which the trainer's libraries need, or nothing for no limit")
    return text


def _check_size(text: str) -> str:
    read_size(text)
    return text


@dataclass(frozen=True, config=STRICT)
class ClientSettings:
    """The settings of one site: where its data lie and which coordinator it belongs to."""

    data: Path | None = None
    """The data folder; only read."""
    join: Path | None = None
    """An invitation written by `pfl invite`; not needed on the coordinator's own machine."""
    proxy_ca: str = ""
    """Who signed the certificate of a proxy on the way that ends TLS: a file of authorities (PEM), or `system` for
    those of this machine. Empty: there is none, and the coordinator proves itself by the federation's own authority.
    """
    server: str | None = None
    """Which coordinator of this machine, when there are several: its address or id."""
    name: str = ""
    """The site's name; empty: the data folder's."""
    state: Path | None = None
    """Where the site keeps its own state; empty: the user's state directory."""
    validation: Annotated[float | None, Field(ge=0, le=0.5), Why("most samples are for training")] = None
    """Share of the training samples that are held back to validate on, where the folder has no validation part; 0 for
    none; empty: what the run says. It holds for runs that this site has not begun yet.
    """
    device: str = "auto"
    """Where to train: auto (a graphics card if there is one), cpu, cuda, cuda:1 or mps."""
    threads: Annotated[int, Field(ge=0, le=1024), Why("0 sets no limit")] = 0
    """The most threads that training takes on this machine, whatever the run says; 0 sets no limit."""
    nice: Annotated[
        int, Field(ge=0, le=19), Why("as of the command nice; less than 0 is the administrator's")
    ] = 0
    """How far training steps back behind other programs: 0 not at all, 19 altogether. The daemon itself does not."""
    wait: Annotated[float | None, Field(ge=0, le=2_592_000), Why("30 days are the most")] = None
    """Seconds to wait at the start for a coordinator that is not there yet; empty: 60 on its own machine, and none with
    an invitation.
    """
    trainer: Literal["warm", "per-task"] = "warm"
    """Keep the trainer between tasks, or start one for each and give its memory back."""
    memory_limit: Annotated[str, AfterValidator(_check_limit)] = ""
    """How much memory the trainer may have (2G, 512M); empty: no limit."""
    cache_limit: Annotated[str, AfterValidator(_check_size)] = "20G"
    """How much room decoded samples may take in the site's state folder; 0: they are held in memory."""
    stay: bool = False
    """After a run wait for the coordinator's next one; for services that are started again when they end."""
    personalize_only: bool = False
    """Take part in no round: fetch the shared state, fit this site's own part to it, end with its model."""
    tell_diagnostics: bool = True
    """Tell the coordinator, beside the scores, what the method measures of its training (loss, sparsity, ...), to be
    summed over sites.
    """
    policy: Path | None = None
    """The rules of what may leave; empty: `policy.toml` in the site's own state folder, or in that of all sites."""
    strict_data: bool = False
    """Take odd data (images of mixed size, one class only) for an error."""
    follow_links: bool = False
    """Read what links in the data folder lead to, in it or elsewhere; without it a link is an error."""
    most_bad: Annotated[float, Field(ge=0, le=1), Why("it is a share of the files")] = MOST_BAD
    """The share of picture files, rounded up, that may be unreadable and are left out; with more of them the site takes
    no part.
    """
    http_host: str = "127.0.0.1"
    """Address of metrics and health."""
    http_port: Port = 0
    """Port of metrics and health; 0 takes a free one."""
    log_format: str = "text"
    """How the log is written to standard error: text (auto is the same; coloured on a terminal) or json."""

    def __post_init__(self) -> None:
        if self.proxy_ca and self.join is None:
            raise SettingError(
                "--proxy-ca without --join",
                expected="an invitation: on the coordinator's own machine no proxy is in between",
                advice="leave --proxy-ca out, or name the operator's file with --join",
            )
        if self.personalize_only and self.stay:
            raise SettingError(
                "--personalize-only with --stay",
                expected="one of them: a site that only fits its own part ends with its model and waits for no run",
                advice="leave --stay out",
            )

    @property
    def proxy_roots(self) -> bytes | None:
        """The authorities that a proxy's certificate may come from, as PEM; None: there is no such proxy."""
        if not self.proxy_ca:
            return None
        named = ssl.get_default_verify_paths().cafile if self.proxy_ca == SYSTEM else self.proxy_ca
        try:
            return Path(named or "").read_bytes()
        except OSError:
            raise SettingError(
                f"--proxy-ca {self.proxy_ca} gives no authorities that can be read",
                expected="a file of certificates (PEM), or system on a machine that has some",
                advice="ask the network's administrators for the certificate of the proxy's authority",
            ) from None

    @property
    def wait_seconds(self) -> float:
        """How long to wait at the start for the coordinator."""
        if self.wait is not None:
            return self.wait
        return WAIT_SECONDS if self.join is None else 0.0

    @property
    def memory_bytes(self) -> int:
        """The trainer's limit; 0: none."""
        return read_size(self.memory_limit) if self.memory_limit else 0

    @property
    def cache_bytes(self) -> int:
        """The cache's limit; 0: there is none."""
        return read_size(self.cache_limit)

    @property
    def state_folder(self) -> Path:
        """The folder for all sites of this user."""
        if self.state is not None:
            return self.state
        given = os.environ.get("XDG_STATE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
        return base / "pfl" / "sites"


def follows_links() -> bool:
    """What PFL_FOLLOW_LINKS says, for programs that read data folders without a site's other settings: `pfl simulate`,
    `pfl compare`, `pfl evaluate`, `pfl doctor`.
    """
    name = "follow_links"
    said = layered(ClientSettings, {}, None, prefix="PFL_")
    return settle(ClientSettings, {name: said[name]} if name in said else {}, what="pfl").follow_links

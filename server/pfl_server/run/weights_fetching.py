"""Finds the file that `--weights` means: one that is named, or torchvision's, fetched if it is not here yet."""

from __future__ import annotations

import difflib
import urllib.error
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

import structlog
import torch

from pfl_common.errors import SettingError
from pfl_common.models.torchvision_weight_names import Published, find_published, is_name
from pfl_common.models.weights_file import SAVED_BY_TORCH, digest
from pfl_server.settings import ServerSettings

log = structlog.get_logger("pfl.weights")


@dataclass(frozen=True)
class Source:
    """Where weights come from."""

    name: str
    """For people: torchvision's name, or the file's own without its folder."""
    file: Path
    published: Published | None
    """Of which of torchvision's weights they are, or are like."""


def find_source(settings: ServerSettings) -> Source | None:
    """The file that is asked for, by its name or by torchvision's for it; None where none is. Nothing is fetched."""
    if not settings.weights:
        if settings.weights_like:
            raise SettingError(
                f"--weights-like {settings.weights_like} without --weights",
                expected="a file beside it, whose network and preprocessing it names",
                advice=f"--weights {settings.weights_like}, or --weights FILE --weights-like "
                f"{settings.weights_like}",
            )
        return None
    if is_name(settings.weights):
        if settings.weights_like:
            raise SettingError(
                "--weights-like beside torchvision's own name",
                expected="one of the two: the name says its network and preprocessing itself",
                advice="leave --weights-like out",
            )
        published = find_published(settings.weights)
        return Source(published.name, published.file, published)
    file = Path(settings.weights)
    like = find_published(settings.weights_like) if settings.weights_like else None
    return Source(file.name, file, like)


def have_file(source: Source, settings: ServerSettings) -> Source:
    """See that its file is here: torchvision's is fetched as torchvision does, a named one has to be there."""
    if source.file.is_file():
        _warn_of_another(source)
    elif is_name(settings.weights) and source.published is not None:
        _fetch(source.published)
    else:
        raise _no_file(settings.weights)
    return source


def digest_if_here(settings: ServerSettings) -> str:
    """The SHA-256 of the file that is asked for now; empty where none is, or it is not here (any more)."""
    source = find_source(settings)
    return digest(source.file) if source is not None and source.file.is_file() else ""


def _fetch(published: Published) -> None:
    log.info("fetching weights", name=published.name, url=published.url, into=str(published.file))
    try:
        published.file.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(
            published.url, str(published.file), published.hash_start, progress=False
        )
    except (OSError, RuntimeError, urllib.error.URLError) as error:
        host = urlparse(published.url).hostname
        like = f"--weights FILE --weights-like {published.name}"
        raise SettingError(
            f"{published.name} is not on this machine, and could not be fetched from {host} ({error})",
            expected=f"{published.file}, where torchvision keeps it, or a way to {host} (HTTPS_PROXY is heeded)",
            advice=f"fetch {published.url} on another machine and put it there, or name it: {like}",
        ) from None


def _warn_of_another(source: Source) -> None:
    """torchvision takes what lies where it keeps its files; so do we, and say so if it is not what it is called."""
    published = source.published
    if published is not None and source.file == published.file and published.hash_start is not None:
        _compare(source.file, published.hash_start)


@cache
def _compare(file: Path, start: str) -> None:
    """Once for each file: it is looked for several times while a run begins."""
    if not (found := digest(file)).startswith(start):
        log.warning(
            "the file of these weights is not the published one: its SHA-256 begins otherwise than its name says",
            file=str(file),
            sha256=found,
            expected=start,
        )


def _no_file(said: str) -> SettingError:
    folder = Path(said).parent
    here = (
        sorted(one.name for one in folder.glob("*") if one.suffix in (".safetensors", *SAVED_BY_TORCH))
        if folder.is_dir()
        else []
    )
    near = difflib.get_close_matches(Path(said).name, here, n=3)
    return SettingError(
        f"--weights {said}: there is no such file, and no weights of torchvision have such a name",
        expected="a .safetensors, .pth or .pt file, or a name such as ResNet18_Weights.IMAGENET1K_V1"
        + (f"; there is {', '.join(near)}" if near else ""),
        advice="check the path; it is read where pfl-server runs",
    )

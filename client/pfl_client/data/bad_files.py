"""Files that cannot be read: left out and told one by one, up to the share that the site allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from pfl_client.data import image_decoding
from pfl_client.data.findings import BadFile, show
from pfl_client.data.picture import Picture
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.logs import HERE_ALONE
from pfl_common.errors import DataError

MOST_TOLD = 20
"""Bad files that are told one by one."""
_NAMED = 5
_ROUNDING = 1e-9

log = structlog.get_logger(__name__)


@contextmanager
def noting_bad(picture: Picture, folder: DataFolder, bad: list[BadFile]) -> Iterator[None]:
    """While open, a file that cannot be read is one more bad one, or with --strict-data an error."""
    try:
        yield
    except image_decoding.Unreadable as error:
        denied = isinstance(error, image_decoding.Denied)
        if folder.strict:
            what = "may not be read" if denied else "is no image that can be read"
            raise DataError(
                f"{picture.position} {what}: {error}",
                expected="images only, because of --strict-data",
                advice="repair or remove it, or leave --strict-data out",
                file=show(picture.path.relative_to(folder.path)),
            ) from None
        bad.append(BadFile(picture.position, picture.path, str(error), denied))


def tell(bad: Iterable[BadFile], folder: DataFolder) -> None:
    """Say which files cannot be read: by their places, and on a terminal by their names."""
    for file in list(bad)[:MOST_TOLD]:
        name = {"file": show(file.path.relative_to(folder.path))}
        seen = {"site": folder.site, "position": file.position, "why": file.why, "sha256": file.digest()}
        log.warning(
            "a file is left out", **{key: word for key, word in seen.items() if word}, **{HERE_ALONE: name}
        )


def check_share(bad: Sequence[BadFile], total: int, folder: DataFolder) -> None:
    """Refuse a folder of which more cannot be read than the site allows. Rounded up: of a few files one may be bad."""
    allowed = math.ceil(folder.most_bad * total - _ROUNDING)
    if len(bad) <= allowed:
        return
    raise DataError(
        f"{len(bad)} of {total} files of {folder.site} cannot be read: {name_places(bad, why=True)}",
        expected=f"at most {allowed}, by --most-bad {folder.most_bad:g}",
        advice="repair or remove them (`pfl doctor --data` names each), or allow a larger share with --most-bad",
        file=show(bad[0].path.relative_to(folder.path)),
    )


def name_places(bad: Sequence[BadFile], *, why: bool = False) -> str:
    """The positions of the first few."""
    shown = [f"{file.position}{f' ({file.why})' if why else ''}" for file in bad[:_NAMED]]
    return "; ".join(shown) + ("; ..." if len(bad) > _NAMED else "")


def nothing_readable(bad: Sequence[BadFile], folder: DataFolder) -> DataError:
    """None of the training files can be read."""
    first = show(bad[0].path.relative_to(folder.path)) if bad else ""
    if bad and all(file.denied for file in bad):
        return DataError(
            f"none of the training files of {folder.site} may be read: Permission denied",
            expected="files that the user of this program may read",
            advice="look at ls -l, or start the program as a user who may read them",
            file=first,
        )
    why = f": {bad[0].position}: {bad[0].why}" if bad else ""
    return DataError(
        f"none of the training files of {folder.site} is an image that can be read{why}",
        expected=f"pictures as {', '.join(image_decoding.FORMATS)} or DICOM",
        advice="look at these files, or into the train folder",
        file=first,
    )

"""Log lines about a run as a whole: why it does not begin, and how it ended for this site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # numbers and words, as the log takes them

import structlog

from pfl_client.run_folder.folder import RunFolder
from pfl_common.spec.messages import Gathering, Joined, Over

log = structlog.get_logger("pfl.site")

_WITHOUT_IT = "the run ended without this site"
_NOT_ITS_OWN = "the run ended before this site was asked to train: no round of its model was trained here"
_NEVER_COUNTED = (
    "this site was asked to train, and none of its updates was counted: the model knows nothing of its data"
)
_LOOK_BACK = (
    "look above for tasks that were declined, not taken or too late, and ask the operator for `pfl status`"
)
_NEXT_TIME = (
    "ask the operator when the next run begins and start pfl-client then, or now with --stay to wait for it",
    "nothing: this site waits for the next run",
)
"""For a site that was not asked to train: one that ends, and one that stays."""


def tell_end(over: Over, folder: RunFolder, numbers: Mapping[str, Any], *, stays: bool) -> None:
    """Log the run's end: its status, the model, this site's numbers, and whether the site had a part in it."""
    seen = {"status": over.status, "words": over.words, "model": str(folder.model or "none")}
    seen |= {"best_model": str(folder.best_model)} if folder.best_model else {}
    if over.counted is not None:
        seen["counted_in_rounds"] = str(over.counted)
    said = {name: word for name, word in seen.items() if word}
    say = log.error if over.status == "failed" else log.info
    say("the run is over", **said, **numbers)
    if over.status == "failed":
        return
    if not folder.vault.marks():
        log.warning(_WITHOUT_IT if folder.model is None else _NOT_ITS_OWN, what_to_do=_NEXT_TIME[stays])
    elif over.counted == 0:
        log.error(_NEVER_COUNTED, what_to_do=_LOOK_BACK)


def tell_hindrances(answer: Joined | Gathering | None, said: set[str]) -> set[str]:
    """Log each warning or hindrance of the coordinator's once; gives those that still hold."""
    words = () if answer is None else answer.warnings if isinstance(answer, Joined) else answer.words
    for each in words:
        if each not in said:
            if isinstance(answer, Joined):
                log.warning("classes", warning=each)
            else:
                log.error("the run does not begin", why=each)
    return set(words)

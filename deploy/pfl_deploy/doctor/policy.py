"""What the doctor says of a site's policy: where it stands, that it can be read, and what may leave by it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pfl_client.policy import explanation, policy_file
from pfl_deploy.doctor.result import Check, ok

ENVIRONMENT = "PFL_POLICY"


def examine_policy(about: str, *folders: Path, named: Path | None = None) -> Iterator[Check]:
    """The policy that a site with these folders would keep; a file that cannot be read is an error."""
    said = os.environ.get(ENVIRONMENT)
    file = policy_file.find(named or (Path(said) if said else None), *folders)
    policy = policy_file.read(file)
    where = str(file) if file else f"no {policy_file.FILE}, so every rule is at its default"
    yield ok(f"{about}, policy", where)
    for sentence in explanation.tell(policy):
        yield ok(f"{about}, policy", sentence)

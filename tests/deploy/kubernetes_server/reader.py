"""Somebody who does what the operator's page says, before a real API server: what it can answer is run.

A command that takes a node is asked all the same, as far as the server can answer. So its flags are known, and the
pod and the container that it names are those that there would be.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.deploy.kubernetes_manifests.page import NODE, SERVER, Asked, Played, play, split
from tests.deploy.kubernetes_manifests.rendering import namespace_of
from tests.deploy.kubernetes_server import controllers
from tests.deploy.kubernetes_server.cluster import Cluster, Said

AT_ONCE = {"rollout": ["--watch=false"], "wait": ["--timeout=0s"]}
"""Not to wait for what never comes here."""
WITHOUT_NODE = {
    "exec": r"pod \S+ does not have a host assigned",
    "logs": r"\A(Defaulted container .*)?\Z",
    "port-forward": r"pod is not running\. Current status=Pending",
    "rollout": r"\AWaiting for .*",
    "wait": r"condition not met for pods/\S+|\A\Z",
}
"""What is answered where pods are there and none runs."""
MISTAKES = {
    "a verb of no kind": ("-n pfl-experiment describe pod coordinator-0", "say whether it takes a node"),
    "a flag nobody knows": ("-n pfl-experiment scale statefulset/coordinator --replica=0", "unknown flag"),
    "another flag nobody knows": (
        "-n pfl-experiment exec --interactively coordinator-0 -- true",
        "unknown flag",
    ),
    "a pod that is not there": ("-n pfl-experiment exec coordinator-1 -- true", '"coordinator-1" not found'),
    "a container of another": (
        "-n pfl-experiment exec coordinator-0 -c site -- true",
        "container site is not valid",
    ),
    "a log of nobody": ("-n pfl-experiment logs site-4", '"site-4" not found'),
    "a port of nobody": ("-n pfl-experiment port-forward pod/site-4 7480", '"site-4" not found'),
    "a StatefulSet of nobody": ("-n pfl-experiment rollout status statefulset/server", '"server" not found'),
    "a wait for nobody": ("-n pfl-experiment wait --for=condition=Ready pod/loader", '"loader" not found'),
    "a pod removed twice": ("-n pfl-experiment delete pod loader", '"loader" not found'),
    "a file that is not there": ("-n pfl apply -f deploy/kubernetes/carrier.yaml", "does not exist"),
    "an overlay that is not there": ("apply -k deploy/kubernetes/overlays/lab", "no such file"),
    "a Secret made twice": (
        "-n pfl-experiment create secret generic join --from-literal=a=b",
        "already exists",
    ),
    "a namespace that is not there": ("-n pfl-lab get service coordinator", '"pfl-lab" not found'),
}
"""What the page could say by mistake, in the state in which it leaves a cluster."""


@dataclass(frozen=True)
class Outcome:
    """How one command went."""

    kind: str
    command: str
    words: str


class Reader:
    """Follows a page before a cluster that is empty."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._cluster, self._say = cluster, say
        self._outcomes: list[Outcome] = []
        self._told = 0

    def follow(self, text: str) -> Iterator[str]:
        """Every block in order; gives what went otherwise than it should."""
        list(controllers.furnish(self._cluster))
        for played in play(text, self._answer):
            yield from self._tell(played)

    def err(self) -> Iterator[str]:
        """Each mistake in place of a block: gives those that nobody noticed, or for another reason."""
        blocks = "\n\nOr:\n\n".join(f"    kubectl {command}" for command, _ in MISTAKES.values())
        for name, played in zip(MISTAKES, play(blocks, self._answer), strict=True):
            refusal, words = " ".join(played.err.split()), MISTAKES[name][1]
            noticed = played.code != 0 and words in refusal
            self._say(f"  {'refused' if noticed else 'WRONG  '}  {name}: …{refusal[-80:]}")
            if not noticed:
                yield name

    def count(self, kind: str) -> int:
        """How many commands of the page were of a kind."""
        return sum(one.kind == kind for one in self._outcomes[: self._told])

    def _tell(self, played: Played) -> Iterator[str]:
        for one in self._outcomes[self._told :]:
            self._say(f"  {one.kind:<8} {one.command}{': ' if one.words else ''}{one.words}")
        self._told = len(self._outcomes)
        if played.code:
            self._say(f"  WRONG    the block at line {played.line} of the page: {played.err[-1500:]}")
            yield f"line {played.line}"

    def _answer(self, asked: Asked) -> tuple[int, str, str]:
        if asked.program == "pfl":
            return split(asked)
        if asked.verb not in SERVER + NODE:
            return (
                1,
                "",
                f"{asked.verb} is neither in SERVER nor in NODE of page.py: say whether it takes a node\n",
            )
        said = self._run(asked) if asked.verb in SERVER else self._ask_in_vain(asked)
        kind = "WRONG" if said.code else "ran" if asked.verb in SERVER else "not run"
        self._outcomes.append(
            Outcome(kind, shlex.join(["kubectl", *asked.words]), said.out if kind == "not run" else "")
        )
        return said.code, "" if kind == "not run" else said.out, said.err

    def _ask_in_vain(self, asked: Asked) -> Said:
        """A command that takes a node: right is what it says where there is none."""
        before, dashes, after = _parted(asked.words)
        words = [*before, *AT_ONCE.get(asked.verb, []), *dashes, *after]
        said = self._cluster.call(words, given=asked.given, folder=Path(asked.folder))
        heard = (said.err + said.out).strip()
        expected = re.search(WITHOUT_NODE[asked.verb], heard)
        return Said(0, expected[0], "") if expected else Said(1, "", heard)

    def _run(self, asked: Asked) -> Said:
        """A command for the server, and what its cluster's controllers would make of it."""
        words, space = asked.words, asked.namespace
        if asked.order[:2] == ["apply", "-k"]:
            said, space = self._apply_overlay(asked)
        else:
            # Nothing here ends what waits for a controller to end it.
            waits = asked.order[:2] == ["delete", "namespace"] or "--cascade=orphan" in words
            words = [*words, "--wait=false"] if waits else words
            said = self._cluster.call(words, given=asked.given, folder=Path(asked.folder))
        if said.code == 0:
            self._control(asked, space)
        return said

    def _apply_overlay(self, asked: Asked) -> tuple[Said, str]:
        """`apply -k`, between whose two halves stands what this old server has to be told otherwise."""
        rendered = self._cluster.call(["kustomize", asked.order[2]], given="", folder=Path(asked.folder))
        if rendered.code:
            return rendered, ""
        items = controllers.for_this_server([item for item in yaml.safe_load_all(rendered.out) if item])
        return self._cluster.ask("apply", *asked.order[3:], objects=items), namespace_of(items)

    def _control(self, asked: Asked, space: str) -> None:
        if "--cascade=orphan" in asked.words:
            controllers.leave_orphans(self._cluster, space, asked.order[2])
        elif asked.order[:2] == ["create", "namespace"]:
            controllers.make_account(self._cluster, asked.order[2])
        elif asked.verb != "get" and asked.order[1] != "namespace":
            controllers.make_account(self._cluster, space)
            controllers.replace_pods(self._cluster, space)


def _parted(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """What is for kubectl, and what is for the program in the pod."""
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place : place + 1], words[place + 1 :]

"""Shows manifests and commands to a real API server: right ones are taken, wrong ones refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.deploy.kubernetes_manifests import page
from tests.deploy.kubernetes_manifests.rendering import OVERLAYS, Object, name_of, objects, of_kind
from tests.deploy.kubernetes_server import building, kubectl
from tests.deploy.kubernetes_server.cluster import Cluster, running
from tests.deploy.kubernetes_server.controllers import for_this_server, furnish, make_account, pod_made_by
from tests.deploy.kubernetes_server.faults import CHANGES, FAULTS, FREEDOMS, plant
from tests.deploy.kubernetes_server.reader import MISTAKES, Reader

GROUND = "experiment"
"""The overlay in which faults are planted: it has every kind of object."""


def show() -> int:
    """Build or find the server, start it, show it everything, count."""
    began = time.monotonic()
    server, hand = building.apiserver(), kubectl.fetch()
    say(f"kube-apiserver {building.VERSION} is there after {time.monotonic() - began:.0f} s")
    with running(server, hand) as cluster:
        say(f"it answers after {time.monotonic() - began:.0f} s")
        wrong = []
        for part in PARTS:
            wrong += list(part(cluster))
            cluster.check()
    with running(server, hand) as cluster:
        wrong += list(page_is_followed(cluster))
        cluster.check()
    refused = len(FAULTS) + len(FREEDOMS) + len(CHANGES)
    good = f"all {len(OVERLAYS)} overlays taken, all {refused} planted faults refused, the page followed to its end"
    say(f"{len(wrong)} of these answers were not as they should be" if wrong else good)
    return 1 if wrong else 0


def page_is_followed(cluster: Cluster) -> Iterator[str]:
    """The operator's page from its first command to its last, on empty ground, and then mistakes."""
    say("the operator's page, before a server that has nothing yet:")
    reader = Reader(cluster, say)
    yield from reader.follow(page.PAGE.read_text())
    ran, not_run = reader.count("ran"), reader.count("not run")
    yield from reader.err()
    say(
        f"of the page's {ran + not_run} calls of kubectl {ran} ran; {not_run} did not, for they take a node; "
        f"{len(MISTAKES)} mistakes were tried"
    )


def overlays_would_be_taken(cluster: Cluster) -> Iterator[str]:
    """Each overlay with `--dry-run=server`, on ground where only the namespaces are."""
    for file, said in furnish(cluster):
        yield from expect(True, said, file)
    for overlay in OVERLAYS:
        items = for_this_server(objects(overlay))
        # A namespace that is only tried is not there for what goes into it.
        cluster.ask("apply", objects=of_kind(items, "Namespace"))
        said = cluster.ask("apply", "--dry-run=server", objects=items)
        yield from expect(True, said, f"{overlay}: {len(items)} objects, as a dry run")


def overlays_are_taken(cluster: Cluster) -> Iterator[str]:
    """Each overlay really, after which there is no difference between it and what the server keeps."""
    for overlay in OVERLAYS:
        items = for_this_server(objects(overlay))
        yield from expect(True, cluster.ask("apply", objects=items), f"{overlay}: {len(items)} objects")
        yield from expect(True, cluster.ask("diff", objects=items), f"{overlay}: no difference")


def pods_are_taken(cluster: Cluster) -> Iterator[str]:
    """A pod of each StatefulSet's template passes the admission of pods, at the restricted level."""
    for overlay in OVERLAYS:
        space = objects(overlay)[0]["metadata"]["name"]
        make_account(cluster, space)
        for item in of_kind(objects(overlay), "StatefulSet"):
            said = cluster.ask("create", "--dry-run=server", objects=[pod_made_by(item)])
            yield from expect(True, said, f"{overlay}: a pod of {name_of(item)}")


def faults_are_refused(cluster: Cluster) -> Iterator[str]:
    """Each fault alone, in an overlay that is right otherwise; its refusal must be about it."""
    for name, fault in FAULTS.items():
        items = for_this_server(objects(GROUND))
        item = next(one for one in items if name_of(one) == fault.name)
        plant(item, fault.place, fault.value)
        said = cluster.ask("create", "--dry-run=server", objects=[judged(item, fault.place)])
        yield from expect(False, said, name, fault.words)


def freedoms_are_refused(cluster: Cluster) -> Iterator[str]:
    """Each freedom alone, given to a site's pod that would be admitted otherwise."""
    for name, (place, value) in FREEDOMS.items():
        site = next(one for one in objects(GROUND) if name_of(one) == "StatefulSet/site")
        pod = pod_made_by(site)
        plant(pod["spec"], place, value)
        said = cluster.ask("create", "--dry-run=server", objects=[pod])
        yield from expect(False, said, f"a pod with {name}", "forbidden")


def changes_are_refused(cluster: Cluster) -> Iterator[str]:
    """What cannot be changed in place: the page for operators says how it is made anew."""
    for name, (field, value) in CHANGES.items():
        [site] = [one for one in objects(GROUND) if name_of(one) == "StatefulSet/site"]
        plant(site, ("spec", field), value)
        said = cluster.ask("apply", "--dry-run=server", objects=[site])
        yield from expect(False, said, f"another {name} for a StatefulSet that is there", "are forbidden")


PARTS: tuple[Callable[[Cluster], Iterator[str]], ...] = (
    overlays_would_be_taken,
    overlays_are_taken,
    pods_are_taken,
    faults_are_refused,
    freedoms_are_refused,
    changes_are_refused,
)


def judged(item: Object, place: tuple[str | int, ...]) -> Object:
    """The object to show: this release looks into a StatefulSet's pods and claims only when they are made."""
    if item["kind"] == "StatefulSet" and place[:3] == ("spec", "template", "spec"):
        return pod_made_by(item)
    if item["kind"] == "StatefulSet" and place[1] == "volumeClaimTemplates":
        claim = item["spec"]["volumeClaimTemplates"][0]
        metadata = {"name": "claim", "namespace": item["metadata"]["namespace"]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": claim["spec"],
        }
    return {**item, "metadata": {**item["metadata"], "name": f"{item['metadata']['name']}-other"}}


def expect(good: bool, said: Any, what: str, words: str = "") -> Iterator[str]:
    """Say how it went; gives what went otherwise than it should."""
    refusal = " ".join((said.err or said.out).split())
    if good == (said.code == 0) and words in refusal:
        say(f"  {'taken  ' if good else 'refused'}  {what}" + ("" if good else f": …{shown(refusal, words)}"))
        return
    say(f"  WRONG    {what}: exit code {said.code}: {refusal[:1500]}")
    yield what


def shown(refusal: str, words: str) -> str:
    """The part of a refusal around the words that were looked for."""
    place = refusal.find(words)
    return refusal[max(0, place - 60) : place + len(words) + 20]


def say(line: str) -> None:
    """To the user who started the command."""
    print(line, flush=True)

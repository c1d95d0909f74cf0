"""All attacks against a coordinator process with honest sites, and what each costs them.

    python -m tests.hostile [NAME ...] [--seconds 30] [--sites 4] [--short]

For each attack: seconds a round takes (median and mean) before and under it, the coordinator's memory and descriptors,
bytes of its log, honest updates lost, how the run ended. At last one run with all strangers' attacks during it, held
against the same run undisturbed. Ends with 1 where a bound is broken. Loopback only, bounded in count and time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from pfl_common.app import logs
from pfl_common.files.descriptors import raise_limit
from tests.hostile import members, ports
from tests.hostile.measure import Bounds, Found, Setting, Strike, measure
from tests.hostile.same_end import compare

SAME_END = "the_same_end"
ALL: dict[str, Strike] = {attack.__name__: attack for attack in ports.ATTACKS} | members.STRIKES
SHORT = ("half_sent_messages", "beats_of_rising_progress", "a_thousand_times_the_change")
SHORT_SECONDS, SHORT_ROUNDS = 4.0, 12
HEAD = (
    f"{'':28}{'median':>7}{'under':>7}{'ratio':>6}{'mean':>7}{'under':>7}{'ratio':>6}{'rounds':>7}{'most':>6}"
    f"{'MB':>5}{'under':>6}{'files':>6}{'under':>6}{'log':>8}{'lost':>5}{'again':>6}{'end s':>6}"
    "  the run, and the attacker"
)


def show(name: str, found: Found) -> str:
    """One line of the table."""
    quiet, loud = found.quiet, found.loud
    heard = ", ".join(f"{code} {count}" for code, count in sorted(found.heard.items()))
    fates = ", ".join(f"{fate} {count}" for fate, count in sorted(found.fates.items()))
    told = "".join(
        f"; {what}: {words}" for what, words in (("it was", fates), ("it was told", heard)) if words
    )
    return (
        f"{name:28}{quiet.median:7.3f}{loud.median:7.3f}{found.ratio_of_medians:6.2f}"
        f"{quiet.mean:7.3f}{loud.mean:7.3f}{found.ratio_of_means:6.2f}{len(loud.rounds):7}{max(loud.rounds):6.1f}"
        f"{quiet.megabytes:5.0f}{loud.megabytes:6.0f}{quiet.descriptors:6}{loud.descriptors:6}{loud.log_bytes:8}"
        f"{found.lost:5}{found.abandoned:6}{found.ending_seconds:6.1f}  {found.ended}{told}"
    )


def attack(name: str, said: argparse.Namespace) -> list[str]:
    """Play one attack and tell what it came to; gives what is wrong."""
    seconds, rounds = (SHORT_SECONDS, SHORT_ROUNDS) if said.short else (said.seconds, Setting.rounds)
    setting = Setting(seconds, rounds, sites=said.sites, descriptors=said.descriptors)
    setting = members.fit(setting, name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = asyncio.run(measure(Path(folder), ALL[name], setting))
        except (AssertionError, TimeoutError) as error:
            return [f"{name}: rounds or sites came to an end: {error!r}"]
    print(show(name, found), flush=True)
    return [f"{name}: {words}" for words in Bounds().broken(found, setting)]


def end_alike(said: argparse.Namespace) -> list[str]:
    """One run with the strangers' attacks, and without; gives what differs."""
    strikes = [one for one in ports.ATTACKS if not said.short or one.__name__ in SHORT]
    with tempfile.TemporaryDirectory() as folder:
        try:
            ends = asyncio.run(compare(Path(folder), strikes))
        except (AssertionError, TimeoutError) as error:
            return [f"{SAME_END}: rounds or sites came to an end: {error!r}"]
    print(
        f"{SAME_END:28}{ends.files} files of tensors, {len(ends.differing)} differ; the sites were told {ends.told}",
        flush=True,
    )
    wrong = [f"{SAME_END}: {name} is another one" for name in ends.differing]
    if ends.told != ({"finished"}, {"finished"}) or not ends.files:
        wrong.append(f"{SAME_END}: told {ends.told}, {ends.files} files; expected: finished twice, and files")
    return wrong


def main() -> int:
    """Read the words, attack, tell."""
    words = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m tests.hostile",
    )
    words.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all if none is named: {', '.join((*ALL, SAME_END))}"
    )
    words.add_argument("--seconds", type=float, default=30.0, help="under each attack, and half of it before")
    words.add_argument("--sites", type=int, default=4, help="honest ones, beside the one that turns")
    words.add_argument("--descriptors", type=int, default=1024, help="that the coordinator may have open")
    words.add_argument("--short", action="store_true", help="three attacks, some seconds each")
    said = words.parse_args()
    if unknown := set(said.names) - {*ALL, SAME_END}:
        words.error(
            f"no attack is called {', '.join(sorted(unknown))}; there are {', '.join((*ALL, SAME_END))}"
        )
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.configure("json", level="critical")  # the honest sites' own
    raise_limit()  # of this process, which holds the other ends
    began, names = time.monotonic(), said.names or [*(SHORT if said.short else ALL), SAME_END]
    print(f"{HEAD}", flush=True)
    wrong = [one for name in names if name != SAME_END for one in attack(name, said)]
    wrong += end_alike(said) if SAME_END in names else []
    print(f"{len(names)} in {time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}")
    print("\n".join(wrong) if wrong else "every bound holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

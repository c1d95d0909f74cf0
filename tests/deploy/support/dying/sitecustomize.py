"""Read by every interpreter that has this folder on its path: its process dies at a named line, once.

    unsaved    a site: the trainer's result is here, nothing of it is kept
    bettered   a site: the model of the round before is in force as its best, nothing else of the task is kept
    outbox     a site: its vault and its outbox are committed, nothing is sent
    received   a site: it has its receipt
    receipted  the coordinator: a site that has its receipt comes for its next task

`tests/deploy/support/killing.py` says who dies where, and reads what is written here just before.
"""

import functools
import importlib.machinery
import inspect
import json
import os
import signal
import sys
from pathlib import Path

NAME = os.environ["DYING_NAME"]
BOOK = Path(os.environ["DYING_BOOK"])


def die(point, number):
    """End this process as the kernel would for want of memory, but write down first where and when."""
    wishes = json.loads((BOOK / "wishes.json").read_text())
    if number not in wishes.get(NAME, {}).get(point, ()):
        return
    try:
        mark = os.open(BOOK / f"{NAME}-{point}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(mark, json.dumps({"pid": os.getpid(), "round": number}).encode())
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner, name, *, before=None, after=None):
    """Look at a method's arguments, by name, before it runs and after it has returned; sync and async alike."""
    whole = getattr(owner, name)
    signature = inspect.signature(whole)

    def look(watch, values, named):
        if watch is not None:
            watch(signature.bind(*values, **named).arguments)

    @functools.wraps(whole)
    def plainly(*values, **named):
        look(before, values, named)
        result = whole(*values, **named)
        look(after, values, named)
        return result

    @functools.wraps(whole)
    async def awaited(*values, **named):
        look(before, values, named)
        result = await whole(*values, **named)
        look(after, values, named)
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(whole) else plainly)


def watch_site(module):
    """A site keeps what it has trained, and lists what it has a receipt for."""

    def at(point):
        def look(said):
            task = said["assignment"].task
            # One that was drawn to drop out sends nothing: nothing of it could be lost.
            if task.kind == "train" and not task.drop:
                die(point, task.round)

        return look

    wrap(module.RunFolder, "keep", before=at("unsaved"), after=at("outbox"))
    wrap(module.BestRound, "commit", after=look_at_best)
    wrap(module.RunFolder, "audit", before=lambda said: die("received", number_of(said["offer"].key)))


def look_at_best(said):
    """Only where there was a better one, and a task's own generation comes after it."""
    if said["better"] is not None and said["task"].kind == "train":
        die("bettered", said["task"].round)


def watch_coordinator(module):
    """A site that comes again has read the answer to its upload."""
    stored = {}

    def note(said):
        stored[said["site"]] = number_of(said["key"])

    def look(said):
        if said["site"] in stored:
            die("receipted", stored[said["site"]])

    wrap(module.Fleet, "stored", after=note)
    wrap(module.Fleet, "next_task", before=look)


def number_of(key):
    """The round in a task's key."""
    return int(key.split("-")[0])


WATCHED = {"pfl_client.run_folder.folder": watch_site, "pfl_server.sites.fleet": watch_coordinator}


class Surgeon:
    """Finds the watched modules as they are found without it, and touches them once they are loaded."""

    def find_spec(self, name, path=None, target=None):
        """The module's own spec; its loader looks in here at the end."""
        if name not in WATCHED:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = found.loader.exec_module

        def load_and_watch(module):
            load(module)
            WATCHED[name](module)

        found.loader.exec_module = load_and_watch
        return found


sys.meta_path.insert(0, Surgeon())

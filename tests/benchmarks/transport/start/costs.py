"""Counts and times what a program does by kind of work while it runs, for `account.py` and `first_round.py`.

One file for each process. A line every half second holds the sums so far, by kind: how often, processor seconds
and seconds. Time within one kind that belongs to another is counted there alone. Named stretches (`SPANS`) and long
imports have a line each, with the processor seconds that belong to no stretch within; a coroutine's are nobody's own.
"""

import asyncio
import functools
import importlib.abc
import inspect
import json
import os
import pathlib
import sys
import threading
import time

WRITE_SECONDS = 0.5
LONG_IMPORT_SECONDS = 0.02
FLOOR = "torch"
"""An import that has a line of its own wherever it stands: no program here can begin to compute sooner."""

WATCHED = {
    "pfl_common.sealing.calls": {
        "signatures of calls": (
            "CallSigner.sign",
            "CallSigner.check",
            "CallBook.check",
            "CallBook.sign_answer",
        )
    },
    "pfl_common.sealing.signatures": {
        "signatures of parcels": (
            "sign_down",
            "verify_down",
            "sign_up",
            "verify_up",
            "sign_receipt",
            "verify_receipt",
        )
    },
    "pfl_common.sealing.content_key": {"wraps of keys": ("wrap", "unwrap")},
    "pfl_common.sealing.parcels": {
        "sealing and opening": ("seal_bytes", "open_to_bytes", "check_frames", "check_whole")
    },
    "pfl_common.wire.convert": {
        "messages": (
            "say_signed",
            "hear_signed",
            "say_marks",
            "hear_marks",
            "say_work",
            "hear_work",
            "say_offer",
            "hear_offer",
            "weigh_parcel",
            "say_receipt",
            "hear_receipt",
            "say_scores",
            "hear_scores",
        )
    },
    "pfl_client.connection.channel": {"calls": ("Line.ask",)},
    "pfl_client.trainer_process.protocol": {
        "letters to the trainer": ("pack", "Arrival.read", "Arrival.take")
    },
    "pfl_client.run_folder.audit": {
        "the site's list": ("Audit.tell", "Audit.announce", "Audit.receive", "Audit.settle")
    },
    "pfl_client.run_folder.vault_generations": {"the vault": ("Vault.commit",)},
    "pfl_client.run_folder.outbox": {"the outbox": ("Outbox.store", "Outbox.sweep", "Outbox.entry")},
    "pfl_client.trainer.session": {"the trainer's task": ("Workbench.work", "Workbench.make_ready")},
    "pfl_server.store.journal_thread": {
        "commits": ("Scribe._write",),
        "requests to the journal": ("Scribe.ask",),
    },
    "pfl_server.store.spool": {"the spool": ("Spool.admit", "Spool.open")},
    "pfl_server.store.checkpoints": {"checkpoints": ("Checkpoints.save",)},
    "pfl_server.store.shelf": {"the shelf": ("Shelf.put", "Shelf.keep_only")},
    "pfl_server.store.tallies": {"sums": ("PlainTally._add",)},
}
"""By module: which of its functions are which kind of work."""

SPANS = {
    "pfl_server.process": ("Coordinator._set_up", "Coordinator._open", "Coordinator._publish"),
    "pfl_server.run.setting_checks": ("check_words", "add_method_settings"),
    "pfl_server.run.specification": ("freeze", "_rehearsed", "adopt"),
    "pfl_server.run.memory_estimate": ("estimate",),
    "pfl_server.run.rehearsal": ("rehearse",),
    "pfl_server.store.run_store": ("build_template", "open_books"),
    "pfl_server.run.host": ("RunHost._gather", "RunHost._play"),
    "pfl_server.run.training": ("Training._resume",),
    "pfl_server.run.attempt_play": ("AttemptPlay.play", "AttemptPlay._close"),
    "pfl_client.onboarding.admission": ("Admission.identify",),
    "pfl_client.trainer_process.process": (
        "_start",
        "TrainerProcess.describe",
        "TrainerProcess.open",
        "TrainerProcess.work",
    ),
    "pfl_client.daemon.loop": ("Daemon._join", "Daemon._enter", "Daemon._take"),
    "pfl_client.trainer.session": ("Workbench.describe", "Workbench.open", "Workbench.work"),
}
"""By module: what has a beginning and an end that a reader of a start wants to see."""

_local = threading.local()
_sums = {}
_lines = []
_turns = 0


def watch(folder):
    """Count from now on, into a file of this process."""
    os.makedirs(folder, exist_ok=True)
    _note("start of Python, and of counting", _began(), time.process_time())
    _watch_library()
    sys.meta_path.insert(0, _Watching())
    _watch_imports()
    path = os.path.join(folder, f"{os.getpid()}.costs")
    threading.Thread(target=_write_on, args=(path,), name="costs", daemon=True).start()


def _write_on(path):
    pause = threading.Event()
    with open(path, "w", encoding="utf-8") as out:
        out.write(
            json.dumps({"began": _began(), "argv": " ".join(getattr(sys, "orig_argv", []))[:300]}) + "\n"
        )
        while not pause.wait(WRITE_SECONDS):
            lines, _lines[:] = _lines[:], []
            sums = {kind: list(each) for kind, each in list(_sums.items())}
            sums["turns of the event loop"] = [_turns, 0.0, 0.0]
            state = {
                "at": time.time(),
                "processor": time.process_time(),
                "sums": sums,
                "threads": _read_threads(),
            }
            for line in (*lines, state):
                out.write(_plain_dumps(line) + "\n")
            out.flush()


def _read_threads():
    """Processor seconds of this process's threads, by their names as the kernel has them."""
    found, tick = {}, os.sysconf("SC_CLK_TCK")
    for number in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{number}/stat", encoding="utf-8", errors="replace") as stat:
                words = stat.read()
        except FileNotFoundError:
            continue
        name = words[words.index("(") + 1 : words.rindex(")")]
        first = "main" if int(number) == os.getpid() else name
        user, system = words[words.rindex(")") :].split()[12:14]
        found[first] = found.get(first, 0.0) + (int(user) + int(system)) / tick
    return found


def _began():
    """When the kernel started this process, as a Unix time."""
    with open("/proc/self/stat", encoding="ascii") as stat, open("/proc/uptime", encoding="ascii") as uptime:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return time.time() - float(uptime.read().split()[0]) + ticks / os.sysconf("SC_CLK_TCK")


def _timed(kind, work):
    """The function, with its own time counted under a kind of work."""

    @functools.wraps(work)
    def counted(*words, **named):
        outer = getattr(_local, "inner", None)
        _local.inner = inner = [0.0, 0.0]
        processor, clock = time.thread_time(), time.perf_counter()
        try:
            return work(*words, **named)
        finally:
            took = time.thread_time() - processor, time.perf_counter() - clock
            _add(kind, took[0] - inner[0], took[1] - inner[1])
            _local.inner = outer
            if outer is not None:
                outer[0] += took[0]
                outer[1] += took[1]

    return counted


def _awaited(kind, work):
    """A coroutine function: how often, under its first word if that is a name, and the seconds until it has ended."""

    @functools.wraps(work)
    async def counted(*words, **named):
        clock = time.perf_counter()
        try:
            return await work(*words, **named)
        finally:
            call = words[1].rpartition("/")[2] if len(words) > 1 and isinstance(words[1], str) else ""
            _add(f"{kind}: {call}" if call else kind, 0.0, time.perf_counter() - clock)

    return counted


def _spanned(name, work):
    """The function, with a line for its beginning and its end."""
    if inspect.iscoroutinefunction(work):

        @functools.wraps(work)
        async def noted_later(*words, **named):
            began = time.time()
            try:
                return await work(*words, **named)
            finally:
                _note(name, began)

        return noted_later

    @functools.wraps(work)
    def noted(*words, **named):
        return _noting(name, work, *words, **named)

    return noted


def _noting(name, work, *words, shortest=0.0, **named):
    """Do it, with a line for it unless it was too short for one."""
    outer, within = getattr(_local, "stretch", None), [0.0]
    _local.stretch, began, processor = within, time.time(), time.thread_time()
    try:
        return work(*words, **named)
    finally:
        _local.stretch, took = outer, time.thread_time() - processor
        if time.time() - began >= shortest:
            _note(name, began, took - within[0])
            within[0] = took
        if outer is not None:
            outer[0] += within[0]


def _note(name, began, processor=None):
    if len(_lines) < 10_000:
        _lines.append({"span": name, "from": began, "to": time.time(), "processor": processor})


def _add(kind, processor, seconds):
    each = _sums.setdefault(kind, [0, 0.0, 0.0])
    each[0] += 1
    each[1] += processor
    each[2] += seconds


_plain_dumps = json.dumps


def _watch_library():
    json.dumps, json.loads = _timed("JSON", json.dumps), _timed("JSON", json.loads)
    os.fsync, os.replace = _timed("fsyncs", os.fsync), _timed("files", os.replace)
    for name in (
        "write_text",
        "write_bytes",
        "read_text",
        "read_bytes",
        "unlink",
        "open",
        "stat",
        "iterdir",
        "touch",
    ):
        setattr(pathlib.Path, name, _timed("files", getattr(pathlib.Path, name)))
    hop = asyncio.base_events.BaseEventLoop.run_in_executor

    def hopping(self, executor, work, *words):
        asked = time.perf_counter()
        done = []

        def there(*given):
            started = time.perf_counter()
            try:
                return work(*given)
            finally:
                done.append((started - asked, time.perf_counter()))

        answer = hop(self, executor, there, *words)
        answer.add_done_callback(
            lambda _: _add("thread hops", 0.0, done[0][0] + time.perf_counter() - done[0][1] if done else 0.0)
        )
        return answer

    asyncio.base_events.BaseEventLoop.run_in_executor = hopping
    turn = asyncio.events.Handle._run

    def turning(self):
        global _turns
        _turns += 1
        return turn(self)

    asyncio.events.Handle._run = turning


def _watch_imports():
    """A line for each import that takes long, of those that another import does not ask for."""
    bootstrap = sys.modules["_frozen_importlib"]
    find = bootstrap._find_and_load

    def finding(name, import_):
        outer = getattr(_local, "importing", False)
        if outer and name != FLOOR:
            return find(name, import_)
        _local.importing = True
        try:
            return _noting(f"import {name}", find, name, import_, shortest=LONG_IMPORT_SECONDS)
        finally:
            _local.importing = outer

    bootstrap._find_and_load = finding


class _Watching:
    """Finds modules as the other finders do, and counts what they do once they are loaded."""

    def find_spec(self, name, path=None, target=None):
        if name not in WATCHED and name not in SPANS and name != "pydantic.type_adapter":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        name = module.__name__
        if name == "pydantic.type_adapter":
            _exchange(module, "TypeAdapter.validate_json", functools.partial(_timed, "JSON"))
            _exchange(module, "TypeAdapter.dump_json", functools.partial(_timed, "JSON"))
        for kind, places in WATCHED.get(name, {}).items():
            for place in places:
                _exchange(module, place, functools.partial(_counted, kind))
        for place in SPANS.get(name, ()):
            _exchange(module, place, functools.partial(_spanned, place))


def _counted(kind, work):
    return (_awaited if inspect.iscoroutinefunction(work) else _timed)(kind, work)


def _exchange(module, place, change):
    """Put a changed function in its place; one that another release does not have is left out."""
    owner, _, name = place.rpartition(".")
    holder = getattr(module, owner, None) if owner else module
    work = vars(holder).get(name) if holder is not None else None
    if work is not None:
        setattr(holder, name, change(work))

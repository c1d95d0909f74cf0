"""A sampling profiler for programs that end by a signal or at once: it writes while they run.

One file for each process, a line for each stack, `file:function;file:function count`, the most frequent first: what
flame graphs are made from. Threads that wait are in it too: `grep -v select` and the like leave what works.
"""

import os
import sys
import threading
import time
from collections import Counter

SAMPLE_SECONDS = 0.005
WRITE_SECONDS = 1.0
DEEPEST = 40


def watch(folder):
    """Sample all threads of this process from now on."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{os.getpid()}.stacks")
    threading.Thread(target=_sample, args=(path,), name="stacks", daemon=True).start()


def _sample(path):
    me, pause, counts = threading.get_ident(), threading.Event(), Counter()
    written = time.monotonic()
    while not pause.wait(SAMPLE_SECONDS):
        for thread, frame in sys._current_frames().items():
            if thread != me:
                counts[_words(frame)] += 1
        if time.monotonic() - written > WRITE_SECONDS:
            _write(path, counts)
            written = time.monotonic()


def _words(frame):
    calls = []
    while frame is not None and len(calls) < DEEPEST:
        code = frame.f_code
        calls.append(f"{os.path.basename(code.co_filename)}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return ";".join(reversed(calls))


def _write(path, counts):
    with open(path, "w", encoding="utf-8") as out:
        # Later stages of an interpreter's start fill this in; before that it may be empty.
        out.write(" ".join(getattr(sys, "orig_argv", [])).replace("\n", " ")[:300] + "\n")
        out.writelines(f"{stack} {count}\n" for stack, count in counts.most_common())

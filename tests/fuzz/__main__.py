"""`python -m tests.fuzz --seconds 60 TARGET...`: feeds changed bytes to readers, and keeps what crashes one.

With atheris installed (pip install atheris) inputs follow what the code under test does with them; without it, or with
--engine bytes, they are changed by chance. With --engine hypothesis they are built: messages, headers and tables that
are right but for a few places. Without targets all of them take their turns; --list names them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import secrets
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from pfl_common.app import logs
from tests.fuzz.mutation import LONGEST, inputs
from tests.fuzz.shape import Found, load_shapes, play
from tests.fuzz.target import Target, load_all

MEMORY = 6 << 30
"""Bytes of address space: a reader that asks for more ends in MemoryError, which no target allows."""
OUT = Path("build/fuzz")
ENGINES = ("auto", "atheris", "bytes", "hypothesis")
BATCH = 50
"""Inputs that are built from one seed; then the next seed takes its turn."""
_INSTRUMENTED = ["pfl_common", "pfl_client", "pfl_server"]


def main() -> int:
    """Fuzz; the exit code is 1 if anything was found."""
    asked = _parse()
    if asked.alone:
        return _fuzz_alone(asked)
    targets = load_all()
    if asked.list:
        sys.stdout.write("\n".join(targets) + "\n")
        return 0
    known = load_shapes() if asked.engine == "hypothesis" else targets
    unknown = set(asked.targets) - known.keys()
    if unknown:
        sys.stderr.write(f"no target {min(unknown)}; known: {', '.join(known)}\n")
        return 2
    # Each in a process of its own: a decoder's fault ends that one alone.
    return max(_start(name, asked) for name in asked.targets or known)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--list", action="store_true", help="name all targets")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _start(name: str, asked: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "tests.fuzz", "--alone", name, "--seconds", str(asked.seconds)]
    command += ["--seed", str(asked.seed), "--engine", asked.engine]
    began = time.monotonic()
    code = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    word = "found something" if code else "nothing"
    sys.stdout.write(
        f"{name}: {word} in {time.monotonic() - began:.0f} s, seed {asked.seed}, exit code {code}\n"
    )
    return min(1, abs(code))


def _fuzz_alone(asked: argparse.Namespace) -> int:
    (name,) = asked.targets
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logs.configure(level="critical")
    warnings.simplefilter("ignore")
    guided = asked.engine == "atheris" or (asked.engine == "auto" and find_spec("atheris") is not None)
    if guided:
        return _fuzz_guided(name, asked)
    target = load_all()[name]
    return _fuzz_built(target, asked) if asked.engine == "hypothesis" else _fuzz_bytes(target, asked)


def _fuzz_bytes(target: Target, asked: argparse.Namespace) -> int:
    end, count = time.monotonic() + asked.seconds, 0
    for content in inputs(asked.seed, target.seeds, target.words):
        if time.monotonic() > end:
            break
        count += 1
        note = OUT / f"{target.name}-last"
        _keep(note, content)  # a fault of a decoder leaves no time to write it down afterwards
        try:
            target(content)
        except BaseException as error:
            _tell(target.name, content, error)
            return 1
        finally:
            note.unlink(missing_ok=True)
    sys.stdout.write(f"{target.name}: {count} inputs\n")
    return 0


def _fuzz_built(target: Target, asked: argparse.Namespace) -> int:
    end, count, seed = time.monotonic() + asked.seconds, 0, asked.seed
    note, build = OUT / f"{target.name}-last", load_shapes()[target.name]
    noting = replace(target, run=lambda content: (_keep(note, content), target.run(content)))
    try:
        while (left := end - time.monotonic()) > 0:
            count += play(noting, build, seed=seed, examples=BATCH, seconds=left)
            seed += 1
    except Found as found:
        _tell(target.name, found.content, found.__cause__ or found)
        return 1
    finally:
        note.unlink(missing_ok=True)
    sys.stdout.write(f"{target.name}: {count} inputs\n")
    return 0


def _fuzz_guided(name: str, asked: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=_INSTRUMENTED, enable_loader_override=False):
        target = load_all()[name]
    corpus = OUT / f"{name}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for place, content in enumerate(target.seeds):
        (corpus / f"seed-{place}").write_bytes(content)

    def run(content: bytes) -> None:
        try:
            target(content)
        except BaseException as error:
            _tell(name, content, error)
            raise

    limits = [
        f"-max_total_time={asked.seconds}",
        f"-seed={asked.seed}",
        f"-max_len={LONGEST}",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup(
        ["fuzz", *limits, f"-artifact_prefix={OUT}/{name}-", "-print_final_stats=0", str(corpus)], run
    )
    atheris.Fuzz()  # ends the process
    return 0


def _tell(name: str, content: bytes, error: BaseException) -> None:
    digest = hashlib.sha256(content).hexdigest()[:12]
    file = _keep(OUT / f"{name}-{digest}", content)
    trace = "".join(traceback.format_exception(error)[-6:])
    sys.stdout.write(f"{name}: {type(error).__name__}; the input is {file}, for tests/fuzz/crashes\n{trace}")


def _keep(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


if __name__ == "__main__":
    raise SystemExit(main())

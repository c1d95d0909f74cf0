"""Stands for a program while a page is played: tells the player how it was called, and says what it is told to."""

from __future__ import annotations

import json
import os
import socket
import sys


def main(line: str, program: str, words: list[str]) -> int:
    """One call, by the player's socket."""
    given = sys.stdin.buffer.read().decode(errors="replace")
    asked = {"program": program, "words": words, "given": given, "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(line)
        way.sendall(json.dumps(asked).encode())
        way.shutdown(socket.SHUT_WR)
        with way.makefile("rb") as back:
            code, out, err = json.loads(back.read())
    sys.stdout.write(out)
    sys.stderr.write(err)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

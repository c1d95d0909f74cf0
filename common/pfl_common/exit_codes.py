"""The exit codes of all programs; the README lists them for those who start programs from scripts."""

from __future__ import annotations

DONE = 0
FAULT = 1
"""A fault of the program: what it prints is a traceback."""
WRONG_WORDS = 2
"""An option, a setting, an invitation."""
DATA = 3
STATE_FOLDER = 4
RUN_FAILED = 5
TRY_AGAIN = 75
"""What the BSDs' sysexits.h calls a temporary failure; service managers know it."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

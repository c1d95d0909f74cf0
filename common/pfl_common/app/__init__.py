"""The outer edge of all programs: settings, help, logs, errors as words.

Loads structlog without rich and pygments, for coloured tracebacks that no log of ours shows: 3 MB of an idle site
daemon, 30 ms of a program's start. It happens here because it has to happen before any other module asks for structlog.
"""

import sys
from types import ModuleType
from typing import cast

_modules = cast("dict[str, ModuleType | None]", sys.modules)
_rich = _modules.setdefault("rich", None)
import structlog as _structlog  # noqa: E402, F401

if _rich is None:
    del _modules["rich"]

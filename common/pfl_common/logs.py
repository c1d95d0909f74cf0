"""Structured logs: one line an event, JSON if asked; never a secret, never a tensor."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(style: Literal["auto", "text", "json"] = "auto", *, level: str = "info") -> None:
    """Set up logging for a program; everything goes to standard error."""
    terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor
    if style == "json":
        renderer = structlog.processors.JSONRenderer(sort_keys=True)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=terminal, pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

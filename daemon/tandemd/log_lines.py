"""How the daemon and its helper log: to stderr, one line an event."""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from typing_extensions import Buffer

LOG_LEVELS = ("debug", "info", "warning", "error")


class Lossy(io.FileIO):
    """A file whose disk may be full: what it does not take is lost, and nobody ends by it."""

    def write(self, data: Buffer, /) -> int:
        """All of it, or as much as there is room for."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def set_up_logging(level: str) -> None:
    """Log to stderr, one line an event."""
    # Unbuffered, so that nothing is left to be written when the program ends.
    raw = Lossy(sys.stderr.fileno(), "wb", closefd=False)
    stderr = io.TextIOWrapper(raw, errors="backslashreplace", write_through=True)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.LogfmtRenderer(
                key_order=("timestamp", "level", "event"),
                bool_as_flag=False,  # tried_again=true, not a word by itself
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(stderr),
    )

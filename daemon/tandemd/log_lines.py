"""Logging of the daemon and its helper: to stderr, one line per event."""

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
    """A file that drops what a full disk does not take, so that logging never ends the program."""

    def write(self, data: Buffer, /) -> int:
        """Write what there is room for, and report all of it as written."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def set_up_logging(level: str) -> None:
    """Log to stderr, one line per event."""
    # Unbuffered, so that nothing is left to be written when the program exits.
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
                bool_as_flag=False,  # tried_again=true rather than a bare word
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(stderr),
    )

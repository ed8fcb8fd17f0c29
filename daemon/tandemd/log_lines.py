"""How the daemon and its helper log: to stderr, one line an event."""

from __future__ import annotations

import logging
import sys

import structlog

LOG_LEVELS = ("debug", "info", "warning", "error")


def set_up_logging(level: str) -> None:
    """Log to stderr, one line an event."""
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

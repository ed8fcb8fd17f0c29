"""Cleans up what tests of the daemon's parts leave behind."""

import contextlib
import sqlite3

import pytest


@pytest.fixture(autouse=True)
def _databases_are_closed(monkeypatch):
    """Close databases: from Python 3.13 on an open one causes a warning in some later test."""
    with contextlib.ExitStack() as opened:
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3,
            "connect",
            lambda *words, **options: opened.enter_context(
                contextlib.closing(connect(*words, **options))
            ),
        )
        yield

"""What tests of the daemon's parts leave behind."""

import contextlib
import sqlite3

import pytest


@pytest.fixture(autouse=True)
def _databases_are_closed(monkeypatch):
    """From Python 3.13 on a warning says which were not, in whatever test comes by then."""
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

"""What the stages of all tests have in common."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made(made_once):
    """The folder of what they compile."""
    return made_once("proof", Path.mkdir)

"""What the stages of all tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made(made_once):
    """The folder of everything that the stages compile."""
    return made_once("proof", Path.mkdir)

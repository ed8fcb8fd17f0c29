"""Paths for the tests of the repository itself."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def docs():
    return ROOT / "docs"

"""A software GPU for the programs of a test."""

import pytest
from runner import Runner


@pytest.fixture
def gpu(tmp_path) -> Runner:
    return Runner(tmp_path)

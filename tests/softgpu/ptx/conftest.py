"""A software GPU for a test's programs."""

import pytest
from runner import Runner


@pytest.fixture
def gpu(tmp_path) -> Runner:
    return Runner(tmp_path)

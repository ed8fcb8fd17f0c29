"""A running device process for each test, in its own directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from softgpu_wire import DeviceProcess


@pytest.fixture
def start_device(tmp_path: Path) -> Iterator[Callable[..., DeviceProcess]]:
    started: list[DeviceProcess] = []

    def start(directory: Path = tmp_path, **settings: object) -> DeviceProcess:
        started.append(DeviceProcess(directory, **settings))
        return started[-1]

    yield start
    for device in started:
        device.stop()

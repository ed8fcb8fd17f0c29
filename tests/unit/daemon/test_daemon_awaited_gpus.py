"""GPUs that appear after the daemon has started, or that do not answer."""

import sys
import threading
from types import SimpleNamespace

import pytest

from tandemd.awaited_gpus import AwaitedGpus
from tandemd.edges.gpus import find_inventory


class NvmlError(Exception):
    pass


class Nvml:
    """NVML with two GPUs once there is a driver; it reports as little about them as allowed."""

    NVMLError = NVMLError_NotFound = NvmlError
    NVML_CLOCK_MEM = 2

    def __init__(self):
        self.has_driver = False
        self.lost = set()
        self.inits = 0

    def __getattr__(self, name):
        answers = {
            "nvmlInit": self._init,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": self._answering,
            "nvmlDeviceGetUUID": lambda index: f"GPU-00000000-0000-0000-0000-00000000000{index}",
            "nvmlDeviceGetName": lambda _: "NVIDIA H100",
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [],
        }
        return answers.get(name, self._refuse)

    def _init(self):
        if not self.has_driver:
            raise NvmlError("Driver Not Loaded")
        self.inits += 1

    def _answering(self, index):
        if index in self.lost:
            raise NvmlError("GPU is lost")
        return index

    def _memory(self, index):
        return SimpleNamespace(total=80, used=3 + self._answering(index))

    def _refuse(self, *_):
        raise NvmlError("Not Supported")


@pytest.fixture
def nvml(monkeypatch):
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_a_driver_that_comes_later_is_found(nvml):
    inventory = find_inventory()
    with pytest.raises(OSError, match="Driver Not Loaded"):
        inventory.refresh()
    assert not inventory.gpus()

    nvml.has_driver = True
    inventory.refresh()
    inventory.refresh()

    assert [gpu.index for gpu in inventory.gpus()] == [0, 1]
    assert nvml.inits == 1


def test_a_gpu_that_does_not_answer_hides_no_other(nvml):
    nvml.has_driver, nvml.lost = True, {0}

    inventory = find_inventory()

    assert [gpu.index for gpu in inventory.gpus()] == [1]
    assert not inventory.holdings().is_complete


def test_a_gpu_that_answers_no_more_stays_what_it_was(nvml):
    nvml.has_driver = True
    inventory = find_inventory()

    nvml.lost = {1}
    inventory.refresh()

    assert [(gpu.index, gpu.memory_total_bytes) for gpu in inventory.gpus()] == [(0, 80), (1, 80)]
    assert not inventory.holdings().is_complete
    nvml.lost = set()
    inventory.refresh()
    assert inventory.holdings().is_complete


class Inventory:
    def __init__(self, looks):
        self.looks = looks
        self.looked = threading.Semaphore(0)

    def refresh(self):
        self.looks -= 1
        self.looked.release()
        if self.looks > 0:
            raise OSError("Driver Not Loaded")

    def gpus(self):
        return ["one"] if self.looks <= 0 else []


def test_it_looks_until_there_are_gpus_and_tells_once(monkeypatch):
    monkeypatch.setattr("tandemd.awaited_gpus.PERIOD_S", 0)
    told = []

    inventory = Inventory(looks=3)
    AwaitedGpus(inventory, tell=lambda: told.append(inventory.looks)).run()

    assert told == [0]


def test_it_ends_before_any_have_come(monkeypatch):
    monkeypatch.setattr("tandemd.awaited_gpus.PERIOD_S", 3600)
    inventory = Inventory(looks=100)
    awaited = AwaitedGpus(inventory, tell=lambda: pytest.fail("there are none"))
    thread = threading.Thread(target=awaited.run)
    thread.start()

    inventory.looked.acquire()
    awaited.stop()
    thread.join(60)

    assert not thread.is_alive()

"""If a daemon asks for a sample, it gets the parameters of a job's launches, to the last bit."""

import os
import struct
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from shim_daemon import Attached, FakeDaemon, Job
from shim_support import ROOT

from tandem import _native, softgpu

LAUNCH, SAMPLED = 1, 32  # RecordKind, kRecord..
SAMPLE_HEAD = 6 * 4096 + 17 * 65536
PROCESS = 41  # FakeDaemon's number for it
WITHOUT_SAMPLES = 1 | 2 | 4  # features of the previous daemon

SETUP = """
import struct
from cuda.bindings import driver
from gpu import Gpu, ok
gpu = Gpu()
pointer = gpu.word(1)
word = int(pointer)
def affine(factor, stream=0):
    gpu.affine(pointer, factor, 5, stream=stream)
def count_up():
    ok(gpu.launch("count_up", (), ()))
def mixed(small, big, middle):  # through the packed buffer
    values = ctypes.create_string_buffer(struct.pack("<b7xdh6xQ", small, big, middle, word))
    size = ctypes.c_size_t(len(values.raw) - 1)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(values), 2, ctypes.addressof(size), 0)
    function = ctypes.c_void_p(int(gpu.function("mixed")))
    assert cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, extra) == 0
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


@pytest.fixture
def job(image: Path, shim_library: Path, tmp_path: Path) -> Iterator[Job]:
    device = tmp_path / "gpu"
    device.mkdir()
    folders = [*(str(ROOT / "tests" / p) for p in ("conformance", "shim"))]
    env = softgpu.environment(folder=device, clock="real", profile="tiny") | {
        "LD_PRELOAD": str(ROOT / shim_library),
        "TANDEM_RUNTIME_DIR": str(tmp_path),
        "TEST_IMAGE": str(image),
        "PYTHONPATH": os.pathsep.join([*folders, sysconfig.get_paths()["purelib"]]),
    }
    with Job(env) as started:
        started.start(f"exec({SETUP!r}, globals())")
        yield started


def attach(job: Job, daemon: FakeDaemon) -> Attached:
    attached = daemon.attach()
    job.result()
    attached.records()
    return attached


def sample(attached: Attached, number: int = 1) -> _native.Sample:
    """Wait for the end of the sample that was asked for, and return it."""
    while True:
        attached.snapshot()
        found = attached.poller.take_sample(process_id=PROCESS, number=number)
        if found is not None:
            return found


def launches(attached: Attached) -> list[int]:
    """Return each launch's number in the sample, for launches since the last call; 0 = not in."""
    found = [struct.unpack("<QBBHIQQQIIQII", packed) for packed in attached.records()]
    return [f[11] if f[2] & SAMPLED else 0 for f in found if f[1] == LAUNCH]


def written(attached: Attached) -> int:
    """Return how many records were ever written to the sample ring."""
    (head,) = struct.unpack("<Q", os.pread(attached.process.fds[1], 8, SAMPLE_HEAD))
    return int(head)


def bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def test_a_sample_is_what_the_launches_were_given(job: Job, daemon: FakeDaemon) -> None:
    attached = attach(job, daemon)
    word = job.do("word")
    attached.poller.begin_sample(process_id=PROCESS, launches=4, timeout_ns=60 * 10**9)

    job.do("(affine(3), mixed(-1, 2.5, 9), count_up(), affine(7))")

    found = sample(attached)
    assert [(name, layout) for _, name, layout, _ in found.functions] == [
        ("affine", [(0, 8), (8, 4), (12, 4)]),
        ("mixed", [(0, 1), (8, 8), (16, 2), (24, 8)]),
        ("count_up", []),
    ]
    assert [(function, words, cut) for _, _, function, words, cut in found.launches] == [
        (0, [word, 3, 5], False),
        (1, [0xFF, bits(2.5), 9, word], False),
        (2, [], False),
        (0, [word, 7, 5], False),
    ]
    assert found.lost == 0
    numbers = [number for number, *_ in found.launches]
    assert numbers == [1, 2, 3, 4] == launches(attached)


def test_before_and_after_a_sample_nothing_is_written(job: Job, daemon: FakeDaemon) -> None:
    attached = attach(job, daemon)
    job.do("affine(3)")
    assert (written(attached), launches(attached)) == (0, [0])

    attached.poller.begin_sample(process_id=PROCESS, launches=1, timeout_ns=60 * 10**9)
    job.do("affine(3)")
    first = sample(attached)
    so_far = written(attached)
    job.do("affine(3)")

    assert written(attached) == so_far > 0
    assert launches(attached) == [1, 0]
    attached.poller.begin_sample(process_id=PROCESS, launches=1, timeout_ns=60 * 10**9)
    job.do("affine(8)")
    second = sample(attached, 2)
    assert [s.number for s in (first, second)] == [1, 2]
    assert second.functions == first.functions  # reported again
    assert [words[1] for _, _, _, words, _ in second.launches] == [8]


def test_launches_into_a_capture_and_of_graphs_are_not_in_it(job: Job, daemon: FakeDaemon) -> None:
    attached = attach(job, daemon)
    job.do("exec('stream = ok(driver.cuStreamCreate(1))', globals())")
    attached.poller.begin_sample(process_id=PROCESS, launches=1, timeout_ns=60 * 10**9)

    job.do("int(ok(driver.cuStreamBeginCapture(stream, 0)) or 0)")
    job.do("affine(3, stream)")
    job.do("exec('graph = ok(driver.cuStreamEndCapture(stream))', globals())")
    job.do("gpu.run_graph(graph, stream)")
    assert written(attached) == 0
    job.do("affine(4, stream)")

    assert [words[1] for _, _, _, words, _ in sample(attached).launches] == [4]


def test_a_shim_under_an_older_daemon_has_no_ring_to_write_to(job: Job, daemon: FakeDaemon) -> None:
    daemon.features = WITHOUT_SAMPLES
    attached = attach(job, daemon)
    attached.poller.begin_sample(process_id=PROCESS, launches=1, timeout_ns=60 * 10**9)

    job.do("affine(3)")

    assert (written(attached), launches(attached)) == (0, [0])


def test_a_sample_that_gets_no_launches_ends_when_its_time_is_over(
    job: Job, daemon: FakeDaemon
) -> None:
    attached = attach(job, daemon)
    assert attached.poller.begin_sample(process_id=PROCESS, launches=1, timeout_ns=0) == 1

    found = sample(attached)

    assert (found.launches, found.functions, found.lost) == ([], [], 0)


def test_a_sample_of_nobody_and_a_second_one_at_once_are_refused(
    job: Job, daemon: FakeDaemon
) -> None:
    attached = attach(job, daemon)
    begin = attached.poller.begin_sample

    assert begin(process_id=PROCESS, launches=1, timeout_ns=60 * 10**9) == 1
    with pytest.raises(RuntimeError, match="41 is being sampled already"):
        begin(process_id=PROCESS, launches=1, timeout_ns=1)
    with pytest.raises(KeyError, match="7 is not polled"):
        begin(process_id=7, launches=1, timeout_ns=1)
    with pytest.raises(KeyError, match="7 is not polled"):
        attached.poller.take_sample(process_id=7, number=1)
    with pytest.raises(ValueError, match="launches is 0, not 1 to 65536"):
        begin(process_id=PROCESS, launches=0, timeout_ns=1)

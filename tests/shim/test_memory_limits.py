"""Every allocator at the limit: refused with CUDA_ERROR_OUT_OF_MEMORY, and nothing leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import _paths, softgpu

pytest.importorskip("cuda.bindings")
pytestmark = pytest.mark.slow

MIB = 1 << 20
LIMIT, PIECE = 64 * MIB, 6 * MIB
GRANULE = 2 * MIB  # the unit in which a device allocates memory
ALLOCATORS = [
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuGraphLaunch",
]


def seen_by(program, folder, *, devices):
    env = softgpu.environment(folder=folder, clock="virtual", profile="tiny", devices=devices)
    env |= {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(folder)}
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), str(folder)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    return json.loads(child.stdout)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return seen_by("memory_limits.py", tmp_path_factory.mktemp("limits"), devices=1)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    return seen_by("memory_crowd.py", tmp_path_factory.mktemp("crowd"), devices=2)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_an_allocator_stops_at_the_limit_and_gives_all_back(seen, name):
    found = seen[name]

    assert found["granted"] == LIMIT // PIECE
    assert found["status"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert found["refused"] == ALLOCATORS.index(name) + 1
    assert found["refused_by"] == [found["refused"], 0, 0]  # by the limit each time
    assert PIECE * (LIMIT // PIECE) <= found["most"] <= LIMIT
    assert found["shown"] == [0, LIMIT]  # while all of it is allocated
    assert (found["counted"], found["leaked"]) == (0, 0)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_what_counts_is_what_the_device_has_given(seen, name):
    assert abs(seen[name]["off"]) < GRANULE


def test_a_reset_takes_all_memory_of_the_device_away(seen):
    before, after = seen["reset"]

    assert (before, after) == (6 * PIECE, 0)


def test_threads_that_share_a_pool_leave_what_the_pool_keeps(crowded):
    counted, reserved = crowded["crowd"]

    assert counted == reserved


def test_the_limit_holds_for_each_device_by_itself(crowded):
    refused, left_on_first, left_on_second, both, after_reset = crowded["devices"]

    assert refused == "CUDA_ERROR_OUT_OF_MEMORY"
    assert (left_on_first, left_on_second) == (5, 6)
    assert (both, after_reset) == (29, 15)  # MiB; the second device was reset

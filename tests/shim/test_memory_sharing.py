"""Memory that can be moved is shared between processes like any other memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import _paths, softgpu

pytest.importorskip("cuda.bindings")

MIB = 1 << 20
LARGE, SMALL = 34 * MIB, 5_000
CONFORMANCE = Path(__file__).parents[1] / "conformance"
OURS = b"TNDMIPC1".hex()


@pytest.fixture
def case(tmp_path):
    """Run a case of memory_sharing.py and return what it has seen."""

    def run(name: str):
        env = softgpu.environment(folder=tmp_path, clock="virtual", profile="tiny")
        env |= {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(tmp_path)}
        env["PYTHONPATH"] = str(CONFORMANCE)
        script = Path(__file__).with_name("memory_sharing.py")
        child = subprocess.run(
            [sys.executable, str(script), str(tmp_path), name],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert child.returncode == 0, child.stdout + child.stderr
        return json.loads(child.stdout) | {"said": child.stderr}

    return run


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("there_and_back", True),
        ("there_and_back_with_who_stays", True),
        ("there_and_back_of_the_driver", False),
    ],
)
def test_two_processes_find_what_the_other_has_written(case, name, is_ours):
    seen = case(name)

    for one, size in zip(seen["seen"], (LARGE, SMALL), strict=True):
        assert (one["answer"], one["right"]) == ("CUDA_SUCCESS", True)
        assert one["range"] == [True, size]
        assert one["same"]  # opened twice
        assert one["closed"] == ["CUDA_SUCCESS", "CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]
        assert one["freed"] == "CUDA_ERROR_INVALID_VALUE"
    assert [handle.startswith(OURS) for handle in seen["handles"]] == [is_ours] * 2
    assert seen["keys"] == [one["key"] for one in seen["seen"]]  # they form one group
    assert seen["same"]
    assert seen["written"] == seen["beside"] == [True, True]
    assert seen["said"] == ""


def test_what_is_shared_stays_and_is_in_use_while_the_rest_is_away(case):
    seen = case("stays_while_others_go")

    slab, units = 2 * MIB, (4 + 34 + 2) * MIB
    assert seen["swappable"] == [units + slab, units + slab - LARGE, slab]
    assert seen["out"] == ["reached", units + slab - LARGE]
    assert (seen["opened"]["answer"], seen["opened"]["right"]) == ("CUDA_SUCCESS", True)
    assert seen["back"] == ["reached", 0]
    assert seen["written"]
    assert seen["right"] == [True, False, True, True]  # the other process has written to that one
    assert seen["device"] == [units + slab, slab]


def test_it_is_there_for_as_long_as_somebody_has_it(case):
    seen = case("outlives_its_owner")

    assert seen["right"]
    assert seen["counted"] == 0  # its owner counts it
    assert seen["closed"] != "CUDA_SUCCESS"
    assert seen["anew"] == "CUDA_ERROR_INVALID_HANDLE"


def test_a_handle_of_what_is_freed_opens_nothing(case):
    seen = case("what_is_freed")

    assert seen["same_place"]
    assert seen["beside"]
    assert seen["answers"] == ["CUDA_ERROR_INVALID_HANDLE"] * 2


def test_it_answers_as_linear_memory_does(case):
    seen = case("odd_handles")

    assert seen["legacy"] == 1
    assert seen["inside"]
    assert seen["own"] == "CUDA_ERROR_INVALID_CONTEXT"
    assert seen["foreign"] == seen["nobody"] == "CUDA_ERROR_INVALID_HANDLE"
    assert seen["retained"] == "CUDA_ERROR_INVALID_VALUE"

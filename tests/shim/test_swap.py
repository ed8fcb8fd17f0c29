"""Memory moves to the host and back, and nobody finds it missing or changed."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tandem import _paths, softgpu

pytest.importorskip("cuda.bindings")

MIB = 1 << 20
ALL = 106 * MIB  # three regions, in whole units
CONFORMANCE = Path(__file__).parents[1] / "conformance"
NS_A_BYTE = 2  # of a copy, by the profile's link
TIMELINE = "timeline.jsonl"


@pytest.fixture
def case(request, tmp_path):
    """Run a case of swap_moves.py and return what it has seen."""

    def run(name: str, faults: str | None = None):
        env = softgpu.environment(
            folder=tmp_path,
            clock="virtual",
            profile="tiny",
            timeline=tmp_path / TIMELINE,
            faults=faults,
        )
        env |= {
            "LD_PRELOAD": str(_paths.SHIM),
            "TANDEM_RUNTIME_DIR": str(tmp_path),
            "PYTHONPATH": str(CONFORMANCE),
        }
        child = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("swap_moves.py")), str(tmp_path), name],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert child.returncode == 0, child.stdout + child.stderr
        return json.loads(child.stdout) | {"said": child.stderr}

    return run


def test_everything_goes_and_comes_back(case):
    seen = case("there_and_back")

    assert seen["held"] == ALL
    assert seen["steps"] == sorted(seen["steps"])
    assert len(seen["steps"]) == 1 + 6  # pieces
    assert all(seen["told"][1:])  # the daemon is woken for each
    assert seen["out"] == ["reached", ALL]
    assert seen["while_out"] == 0  # the room really is free for others
    assert seen["back"] == ["reached", 0]
    assert seen["right"] == [True] * 3
    assert seen["leaked"] == 0
    assert seen["counted"] == [0, 0, 0]


def test_what_was_copied_is_counted_with_the_time_that_took(case):
    seen = case("there_and_back")

    assert seen["copied"] == [ALL, ALL]
    assert all(1 <= ns / (ALL * NS_A_BYTE) < 1.01 for ns in seen["copied_ns"])


def spans(timeline, pid, kind):
    """Return begin and end of each copy of that kind."""
    found = [json.loads(line) for line in timeline.read_text().splitlines()]
    return [
        (row["t_start_ns"], row["t_end_ns"])
        for row in found
        if row.get("pid") == pid and row["kind"] == kind
    ]


def test_who_comes_in_follows_piece_by_piece_who_goes_out(case, tmp_path):
    seen = case("one_follows_the_other")

    assert seen["right"] == [True]
    assert seen["other"][0] == "reached"
    comes, goes = seen["pids"]
    ins = spans(tmp_path / TIMELINE, comes, "copy_htod")[-4:]
    outs = spans(tmp_path / TIMELINE, goes, "copy_dtoh")
    assert len(outs) >= 4
    both = sum(
        max(0, min(ended, end) - max(began, begin)) for began, ended in outs for begin, end in ins
    )
    assert both >= 0.7 * sum(end - begin for begin, end in ins)  # the first piece cannot overlap
    pauses = [later - end for (_, end), (later, _) in pairwise(ins)]
    assert max(pauses) < 1_000_000


def test_no_more_goes_than_must(case):
    seen = case("in_part")

    targets = (40 * MIB, 80 * MIB, 10 * MIB)
    assert [outcome for outcome, _ in seen["moves"]] == ["reached"] * 4
    resident = [ALL - swapped for _, swapped in seen["moves"]]
    assert all(
        0 <= target - left < 32 * MIB for target, left in zip(targets, resident, strict=False)
    )
    assert resident[-1] == ALL
    assert seen["right"] == [True] * 3


def test_an_order_that_is_said_twice_is_carried_out_once(case):
    seen = case("said_twice")

    assert seen["out"] == ["reached", 48 * MIB]
    assert seen["back"] == ["reached", 0]
    assert all(seen["right"])


def test_nothing_moves_without_a_home_for_all_that_has_to(case):
    seen = case("without_room_on_the_host")

    nowhere, too_little, fits, back = seen["moves"]
    assert nowhere == too_little == ["no host room", 0]
    assert fits[0] == "reached"
    assert 32 * MIB <= fits[1] <= 64 * MIB  # in whole pieces
    assert back == ["reached", 0]
    assert seen["right"] == [True] * 3


def test_a_descriptor_that_does_not_come_is_missed_and_no_other_is_taken_for_it(case):
    seen = case("descriptors_that_do_not_come")

    assert seen["out"] == ["reached", ALL]
    assert seen["answers"] == [["failed", 0], ["failed", 0], ["reached", ALL]]
    assert seen["back"] == ["reached", 0]
    assert seen["right"] == [True] * 3


def test_whoever_needs_the_memory_waits_until_it_is_back(case):
    seen = case("work_waits")

    assert seen["out"] == ["reached", ALL]
    assert seen["reason"] == 4  # WaitReason: memory
    assert seen["early"] == []
    assert seen["back"] == ["reached", 0]
    assert seen["done"] == [[True, 70 * MIB], "CUDA_SUCCESS"]
    assert seen["set"] == 7
    assert seen["beside_it"]


def test_work_that_needs_a_thread_at_the_door_is_let_go_on(case):
    seen = case("work_that_does_not_end")

    assert seen["kept_out"]
    assert seen["ended"] == ["reached", 0]
    assert seen["written"] == [True]
    assert seen["right"] == [True] * 3


def test_a_job_whose_room_is_taken_waits_and_loses_nothing(case):
    seen = case("room_is_taken")

    assert seen["out"] == ["reached", ALL]
    assert seen["taken"] == "CUDA_SUCCESS"
    assert not seen["early"]
    assert seen["copied_ns"] < 1.01 * ALL * NS_A_BYTE  # the wait for room is not in it
    assert seen["left"] == 0
    assert seen["right"] == [True] * 3


def test_without_its_daemon_the_memory_comes_back_by_itself(case):
    seen = case("daemon_ends")

    assert seen["out"] == ["reached", ALL]
    assert seen["right"] == [True] * 3
    (line,) = [line for line in seen["said"].splitlines() if line.startswith("tandem: ")]
    assert line == (
        "tandem: bringing 106 MiB of memory back from the host without the daemon, once there is "
        "room"
    )


def test_small_memory_is_packed_and_moves_too(case):
    seen = case("small_ones")

    assert all(at % 256 == 0 for at, _ in seen["spans"])
    assert all(at + size <= later for (at, size), (later, _) in pairwise(seen["spans"]))
    assert seen["ranges"] == seen["spans"]
    assert seen["sizes"] == [size for _, size in seen["spans"]]
    assert len(set(seen["ids"])) == len(seen["ids"])
    assert seen["held"] == 6 * MIB  # slabs, for 3.9 MiB
    assert seen["counted"] == [6 * MIB, 6 * MIB]
    assert seen["out"] == ["reached", 6 * MIB]
    assert seen["back"] == ["reached", 0]
    assert seen["right"] == [True] * len(seen["spans"])
    assert seen["again"] == "CUDA_ERROR_INVALID_VALUE"
    assert seen["left"] == [2 * MIB] * 2  # one slab, kept for the next


def test_the_limit_is_used_up_to_the_last_byte_by_small_memory(case):
    seen = case("small_ones_at_the_limit")

    assert seen["granted"] == ["CUDA_SUCCESS"] * 5 + ["CUDA_ERROR_OUT_OF_MEMORY"]
    assert seen["counted"] == [3 * MIB, 2 * MIB]


def test_small_memory_ends_with_its_context(case):
    seen = case("context_ends")

    assert seen["before"] == 6 * MIB
    assert seen["after"] == [2 * MIB] * 2


# Three copies fill the memory, six move its pieces out, six back in. Each piece is created twice.
@pytest.mark.parametrize(
    ("fault", "moves", "answer"),
    [
        (None, ["reached", "reached"], "SUCCESS"),
        ("copy@5", ["failed", "failed"], "ERROR_UNKNOWN"),
        ("copy@11", ["reached", "failed"], "ERROR_UNKNOWN"),
    ],
)
def test_a_copy_that_fails_is_an_error_of_its_job_alone(case, fault, moves, answer):
    seen = case("copy_fails", faults=fault)

    assert seen["moves"] == moves
    assert seen["answer"] == f"CUDA_{answer}"
    assert seen["others"]


def test_memory_that_is_refused_on_the_way_back_comes_all_the_same(case):
    seen = case("there_and_back", faults="map@7,oom@9,map@12")

    assert seen["back"] == ["reached", 0]
    assert seen["right"] == [True] * 3
    assert seen["leaked"] == 0


def test_who_waits_for_memory_on_a_lost_device_hears_of_that(case):
    seen = case("device_is_lost", faults="lost:bump@1")

    assert seen["out"] == ["reached", ALL]
    assert seen["back"] == ["failed", ALL]
    assert seen["answers"] == ["CUDA_ERROR_DEVICE_UNAVAILABLE"]


@pytest.mark.parametrize("launches", ["launch_without_daemon", "launch_ex_without_daemon"])
def test_without_a_daemon_a_launch_waits_for_the_memory_that_is_away(case, launches):
    seen = case(launches)

    assert seen["out"] == ["reached", ALL]
    assert seen["early"] == []
    assert seen["done"] == ["CUDA_SUCCESS"] * 2
    assert seen["added"] == 1


def test_who_waited_for_memory_asks_the_daemon_that_is_there_by_then(case):
    seen = case("another_daemon_comes")

    assert seen["early"] == []
    assert seen["done"] == ["CUDA_SUCCESS"]


def test_memory_comes_back_beside_a_capture_and_leaves_it_whole(case):
    seen = case("captured_on_the_way_back")

    assert seen["captured"] == "CUDA_SUCCESS"
    assert seen["back"] == ["reached", 0]
    assert seen["right"] == [True] * 3


def test_memory_freed_beside_a_capture_goes_when_that_has_ended(case):
    seen = case("frees_beside_a_capture")

    refused = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"] * 2
    freed = ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]  # the driver's answer to a second free
    assert seen["frees"] == {
        f"{mode} {size}": refused if mode == "GLOBAL" else freed
        for mode in ("GLOBAL", "THREAD_LOCAL", "RELAXED")
        for size in (100, 4 * MIB)
    }
    invalid = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert seen["ends"] == {
        "GLOBAL": invalid, "THREAD_LOCAL": "CUDA_SUCCESS", "RELAXED": "CUDA_SUCCESS"
    }  # fmt: skip
    assert seen["held"] == [10 * MIB, 2 * MIB]  # one empty slab is kept


def test_memory_freed_beside_a_capture_is_there_for_the_next_allocation(case):
    seen = case("freed_beside_a_capture_and_wanted")

    kinds = ("linear", "physical", "array")
    in_order = ["CUDA_SUCCESS"] * 2 + ["CUDA_ERROR_OUT_OF_MEMORY"]  # they need not wait for the GPU
    assert seen["answers"] == {kind: ["CUDA_SUCCESS"] * 3 for kind in kinds} | {"pool": in_order}


def test_memory_that_a_network_card_was_told_of_stays(case):
    seen = case("given_to_a_network_card")

    assert seen["out"] == ["reached", 6 << 20]
    assert seen["stays"] == ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]
    assert seen["back"] == ["reached", 0]


def test_memory_that_is_bound_for_several_gpus_stays(case):
    seen = case("bound_for_several_gpus")

    assert seen["answer"] == "CUDA_ERROR_NOT_SUPPORTED"  # by the software GPU
    assert seen["out"] == ["reached", 6 << 20]
    assert seen["stays"] == ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]
    assert seen["back"] == ["reached", 0]


def test_small_memory_begins_where_textures_may(case):
    assert case("small_memory")["begin_at"] == [0, 0, 0]


def test_memory_of_a_graph_that_a_threads_default_stream_captures_is_none_of_a_pool(case):
    seen = case("allocated_in_a_per_thread_capture")

    assert seen["answers"] == [0, 0, 0, 0]
    assert seen["held"] == 0


def test_who_frees_the_first_of_a_slab_twice_frees_nothing_else(case):
    seen = case("frees_the_first_of_a_slab_twice")

    assert seen["frees"] == ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]
    assert seen["others"] == [1, 2]


def test_a_job_that_may_not_be_moved_keeps_the_drivers_allocator(case):
    seen = case("not_swappable")

    assert seen["moves"] == [["reached", 0]]
    assert seen["virtual"] != "CUDA_SUCCESS"

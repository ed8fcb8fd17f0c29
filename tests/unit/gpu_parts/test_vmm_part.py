"""How the part `vmm` evaluates the reports of its programs."""

from contextlib import nullcontext

import pytest
from bench.gpu.harness.questions import all_answered
from bench.gpu.parts import vmm
from bench.gpu.parts.vmm import KINDS, add_ratios, room_bytes


def test_rates_stand_over_those_of_the_drivers_own_memory():
    copies = {kind: {"out_gb_s": 50.0, "in_gb_s": 40.0} for kind in KINDS}
    copies["memfd"] = {"out_gb_s": 25.0, "in_gb_s": 40.0}  # slow, but no excuse for the move
    move = {"out_gb_s": 40.0, "in_gb_s": 30.0}

    add_ratios({"copies": copies, "move": move, "stall": {}})

    assert copies["memfd"]["out_vs_hostalloc"] == 0.5
    assert copies["memfd"]["in_vs_hostalloc"] == 1.0
    assert move["out_vs_pinned"] == 0.8
    assert move["in_vs_pinned"] == 0.75


def test_waits_stand_over_those_beside_an_idle_context_and_what_failed_has_none():
    stall = {
        "alone": {"median_us": 4.0, "p99_us": 5.0},
        "beside_idle": {"median_us": 5.0, "p99_us": 10.0},
        "move": {"median_us": 5.0, "p99_us": 30.0, "max_us": 2000.0},
        "register": {"error": "ENOMEM"},
    }
    copies = {kind: {"error": "no memory"} for kind in KINDS}

    add_ratios({"copies": copies, "move": {"error": "no memory"}, "stall": stall})

    assert stall["move"]["p99_vs_idle"] == 3.0
    assert stall["move"]["p50_vs_idle"] == 1.0
    assert stall["register"] == {"error": "ENOMEM"}
    assert "p99_vs_idle" not in {**stall["alone"], **stall["beside_idle"]}


def test_a_container_has_no_more_than_its_limit(tmp_path):
    limit = tmp_path / "memory.max"

    assert room_bytes(100, limit) == 100
    limit.write_text("max\n")
    assert room_bytes(100, limit) == 100
    limit.write_text("60\n")
    assert room_bytes(100, limit) == 60


@pytest.mark.parametrize(
    ("about", "is_answered"),
    [({"why_not": "No space left on device"}, True), ({"error": "Invalid argument"}, False)],
)
def test_huge_pages_that_nobody_has_set_aside_are_no_failure(about, is_answered, monkeypatch):
    part = object.__new__(vmm._Part)
    monkeypatch.setattr(part, "_copies", lambda _kind: [])
    monkeypatch.setattr(part, "_started", lambda _command: nullcontext((None, about)))

    found = part.copies("memfd_hugetlb")()

    assert found == about
    assert all_answered(found) is is_answered

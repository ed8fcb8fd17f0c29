"""What the shim adds to a launch.

A C program times groups of launches, alternating in the same process between the driver's own
function (bare) and the one a program finds. The variants below take turns for seven rounds, each on
one CPU that nothing else in the measurement uses. Figures are the smallest of seven medians.

    passthrough      the shim loaded and switched off
    full             attached, gate open, telemetry on, segments so long that no marker is needed
    latency_peer     like full, beside a latency job whose presence word changes all the time but
                     never lies ahead: the cost of reading it, not the wait, which is intended
    latency_class    like full, for the latency job itself, which must update its own presence
    in_a_set         like full, with a set of SMs: each launch checks whether its stream is in it
    usual_segments   like full, with segments of the usual length: includes a launch's share of
                     markers
    tandemd          a batch job under the real daemon with its defaults
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from bench.bars import bar, progress, show, show_bars, smallest_median
from bench.one_job_daemon import LATENCY_CLASS, LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import NotMeasuredError, Stage, read_round, stage

ROUNDS = 7
GROUPS = 40
FULL_GROUPS = 160  # for variants with a tight budget
LAUNCHES = 32 * GROUPS  # the least in a run
ADDED_LIMIT_NS = 25
LATENCY_ACTIVE_LIMIT_NS = 120
IN_A_SET_LIMIT_NS = 10

Rounds = dict[str, list[list[float]]]


ATTACHED = {
    "full": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False),
    "latency_peer": Treatment(segment_ns=LONG_SEGMENT_NS),
    "latency_class": Treatment(job_class=LATENCY_CLASS, segment_ns=LONG_SEGMENT_NS, has_peer=False),
    "usual_segments": Treatment(has_peer=False),
    "in_a_set": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False, has_set=True),
}


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    cpus = os.sched_getaffinity(0)
    cpu = max(cpus)
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus - {cpu})  # every child but the measured program inherits this
    with stage() as place:
        rounds = _measure(place, cpu)
    figures = _figures(rounds)
    doubt = ""
    if abs(figures["noise_ns"]) > ADDED_LIMIT_NS / 2:
        doubt = "the machine is too busy: the same function twice differs by half the budget"
    bars = {
        "added_ns": bar(figures["added_ns"], ADDED_LIMIT_NS, doubt=doubt),
        "latency_active_added_ns": bar(
            figures["latency_active_added_ns"], LATENCY_ACTIVE_LIMIT_NS, doubt=doubt
        ),
        "set_ns": bar(figures["set_ns"], IN_A_SET_LIMIT_NS, doubt=doubt),
    }
    print(f"launch, smallest of {ROUNDS} interleaved medians, on CPU {cpu}")
    show(figures, "ns")
    show_bars(bars)
    ratios = {
        f"{name}_vs_bare": round(1 + figures[f"{key}added_ns"] / figures["bare_ns"], 4)
        for name, key in (("passthrough", "passthrough_"), ("full", ""), ("tandemd", "tandemd_"))
    }
    return {"bench": "launch", **figures, "ratios": ratios, "bars": bars}


def _measure(place: Stage, cpu: int) -> dict[str, Rounds]:
    found: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    batch = place.shimmed(TANDEM_PRIORITY="batch")
    with place.device():
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            _plain(place, found["alone"], place.env, cpu)
            _plain(place, found["passthrough"], {**batch, "TANDEM_DISABLE": "1"}, cpu)
            with listening(place.attach_socket) as listener:
                for name, wanted in ATTACHED.items():
                    attached(place, listener, found[name], wanted, cpu)
        with place.daemon():
            for number in range(1, ROUNDS + 1):
                progress(f"with tandemd, round {number} of {ROUNDS}")
                _plain(place, found["tandemd"], batch, cpu)
    return found


def _plain(place: Stage, rounds: Rounds, env: Mapping[str, str], cpu: int) -> None:
    with place.running(_command(place, cpu, GROUPS), env) as child:
        read_round(child, rounds)


def attached(
    place: Stage, listener: socket.socket, rounds: Rounds, wanted: Treatment, cpu: int
) -> None:
    """Run the program once under the one-job daemon."""
    groups = FULL_GROUPS if wanted in (ATTACHED["full"], ATTACHED["in_a_set"]) else GROUPS
    command = _command(place, cpu, groups)
    with place.running(command, place.shimmed()) as child, one_job(listener, wanted) as job:
        if wanted.has_peer:
            job.flutter()
        read_round(child, rounds)
    if job.records < LAUNCHES:
        msg = f"the job wrote {job.records} records for {LAUNCHES} launches: it was not recorded"
        raise NotMeasuredError(msg)


def _command(place: Stage, cpu: int, groups: int) -> list[str]:
    return [str(place.compile("launch.cpp")), str(place.kernels()), str(groups), str(cpu)]


def _figures(found: Mapping[str, Rounds]) -> dict[str, float]:
    added = {name: added_ns(rounds) for name, rounds in found.items()}
    full = added["full"]
    figures = {
        "alone_ns": smallest_median(found["alone"]["bare"]),  # a process without the shim
        "bare_ns": smallest_median(found["full"]["bare"]),
        "full_ns": smallest_median(found["full"]["found"]),
        "added_ns": full,
        "latency_active_added_ns": max(added["latency_peer"], added["latency_class"]),
        "marker_ns": added_ns(found["full"], "_query") - full,
        "usual_segments_marker_share_ns": added["usual_segments"] - full,
        "set_ns": added["in_a_set"] - full,  # what the set alone adds
        "noise_ns": added["alone"],  # the same function twice: the difference is noise
        "rdtsc_ns": smallest_median(found["alone"]["rdtsc"]),
    }
    others = set(added) - {"alone", "full", "usual_segments"}
    figures |= {f"{name}_added_ns": added[name] for name in sorted(others)}
    return {name: round(value, 2) for name, value in figures.items()}


def added_ns(rounds: Rounds, suffix: str = "") -> float:
    """What a launch costs more as a program finds it than bare, by the smallest medians of each."""
    return smallest_median(rounds[f"found{suffix}"]) - smallest_median(rounds[f"bare{suffix}"])

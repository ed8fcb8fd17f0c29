"""What a set of SMs adds to a launch while it does not change, so the stream is already in it.

Like bench/launch.py; runs its program under the one-job daemon, in turn without a set and with one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

from bench.bars import bar, progress
from bench.launch import Rounds, added_ns, attached
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening
from bench.stage import stage

ROUNDS = 5
ADDED_LIMIT_NS = 10
WAYS = {
    "whole": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False),
    "set": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False, has_set=True),
}


def measure() -> dict[str, Any]:
    """Return what the shim adds to a launch either way, in ns, and the bar of the difference."""
    found: dict[str, Rounds] = {way: defaultdict(list) for way in WAYS}
    cpus = os.sched_getaffinity(0)
    cpu = max(cpus)
    with stage() as place, place.device(), listening(place.attach_socket) as listener:
        for number in range(1, ROUNDS + 1):
            progress(f"launches in a set: round {number} of {ROUNDS}")
            for way, wanted in WAYS.items():
                attached(place, listener, found[way], wanted, cpu)
    added = {f"{way}_added_ns": round(added_ns(rounds), 2) for way, rounds in found.items()}
    more_ns = added["set_added_ns"] - added["whole_added_ns"]
    return {**added, "bars": {"added_ns": bar(round(more_ns, 2), ADDED_LIMIT_NS)}}

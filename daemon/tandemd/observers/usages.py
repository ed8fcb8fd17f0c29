"""Converts the poller's snapshot of a process to the core's form."""

from __future__ import annotations

from tandem import _native
from tandemd.core.model import MemoryWait, Phases, SmSet, SwapOutcome, Usage, WaitReason


def usage_of(snapshot: _native.Snapshot) -> Usage:
    """Convert one snapshot of a process."""
    reason = snapshot.wait_reason
    return Usage(
        process_id=snapshot.process_id,
        busy=snapshot.busy,
        waiting_threads=snapshot.waiting_threads,
        wait_reason=WaitReason(reason) if reason <= WaitReason.MEMORY else WaitReason.NONE,
        wait_since_ns=snapshot.wait_since_ns,
        wait_total_ns=tuple(snapshot.wait_total_ns),
        exclusive_ns=snapshot.exclusive_ns,
        shared_ns=snapshot.shared_ns,
        even_ns=snapshot.even_ns,
        device_bytes=snapshot.device_bytes,
        swappable_bytes=snapshot.swappable_bytes,
        swapped_bytes=snapshot.swapped_bytes,
        iteration_peak_bytes=snapshot.iteration_peak_bytes,
        iteration_end_bytes=snapshot.iteration_end_bytes,
        stopped=snapshot.stopped,
        stopped_phases=snapshot.stopped_phases,
        begun_phases=snapshot.begun_phases,
        phase_hash=snapshot.phase_hash,
        critical_until_ns=snapshot.critical_until_ns,
        listens=snapshot.listens,
        pause_ready=snapshot.pause_ready,
        swap_done=snapshot.swap_done,
        swap_outcome=SwapOutcome(snapshot.swap_outcome),
        swap_out_bytes=snapshot.swap_out_bytes,
        swap_out_ns=snapshot.swap_out_ns,
        swap_in_bytes=snapshot.swap_in_bytes,
        swap_in_ns=snapshot.swap_in_ns,
        filed_bytes=snapshot.filed_bytes,
        capturing=snapshot.capturing,
        open_segments=snapshot.open_segments,
        alloc_count=snapshot.alloc_count,
        refused_by=snapshot.refused_by,
        memory_wait=_memory_wait(snapshot),
        launches=snapshot.launches,
        work_ns=snapshot.work_ns,
        timed_count=snapshot.timed_count,
        steps=snapshot.steps,
        iterations=snapshot.iterations,
        iteration_ns=snapshot.iteration_ns,
        iteration_launches=snapshot.iteration_launches,
        gap_p50_ns=snapshot.gap_p50_ns,
        gap_p90_ns=snapshot.gap_p90_ns,
        iteration_bytes=snapshot.iteration_bytes,
        peak_bytes=snapshot.peak_bytes,
        step_work_ns=snapshot.step_work_ns,
        marks_requests=snapshot.marks_requests,
        phases=_phases(snapshot),
        in_set=SmSet(*snapshot.in_set) if snapshot.in_set else None,
        in_turn=snapshot.in_turn,
        following_streams=snapshot.following_streams,
        staying_streams=snapshot.staying_streams,
        runs_graphs=snapshot.runs_graphs,
        linger_ns=snapshot.linger_ns,
        ungated=snapshot.ungated,
        dropped_records=snapshot.dropped_records,
    )


def _memory_wait(snapshot: _native.Snapshot) -> MemoryWait | None:
    if not snapshot.memory_ticket:
        return None
    return MemoryWait(
        ticket=snapshot.memory_ticket,
        size_bytes=snapshot.memory_wanted_bytes,
        is_quota=snapshot.memory_of_quota,
        is_alone=snapshot.memory_alone,
        tried_round=snapshot.memory_round,
    )


def _phases(snapshot: _native.Snapshot) -> Phases | None:
    if not any(snapshot.phases):
        return None
    forward, backward, update = (part / 1000 for part in snapshot.phases)
    return Phases(forward=forward, backward=backward, update=update, marked=snapshot.phases_marked)

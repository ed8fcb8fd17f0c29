"""When a turn is over: after a quantum of GPU time, or at the end of an iteration near that.

A hand-over in the middle of an iteration waits for what is queued to drain, and cuts what runs
best as a whole; at its end the queue is empty anyway. So a quantum may be a quarter shorter or
longer where iterations are known. Over time nobody gains: fair queueing counts what was used.

Where a policy orders pieces of work (pieces.py), a turn is one of them, whatever it takes; one that
takes longer than any before is over after a quantum.
"""

from __future__ import annotations

from tandemd.core.model import Group

STALLS = 50  # a turn lasts this many times what passing it on takes: 2 % are lost at most
_SLACK = 4  # the part of a quantum by which it may be moved, as a divisor


def is_over(holder: Group, *, served_ns: int, quantum_ns: int) -> bool:
    """Whether the holder, after `served_ns` of GPU time in this turn, has had its quantum."""
    slack_ns = quantum_ns // _SLACK
    if not holder.step_cost_ns:
        return served_ns >= quantum_ns
    if is_between_iterations(holder):
        return served_ns >= quantum_ns - slack_ns
    since_ns = holder.served_ns - holder.step_served_ns
    left_ns = holder.step_cost_ns - since_ns
    is_near = 0 < left_ns <= quantum_ns + slack_ns - served_ns
    return served_ns >= quantum_ns and not is_near


def is_piece_over(holder: Group, *, served_ns: int, quantum_ns: int) -> bool:
    """The same where turns are pieces of work."""
    piece = holder.piece
    if piece.is_foreseen(holder.served_ns):
        return served_ns > 0 and piece.is_fresh(holder.served_ns)
    return served_ns >= quantum_ns


def left_of_piece_ns(holder: Group, *, served_ns: int, quantum_ns: int) -> int:
    """GPU time until `is_piece_over` may change its answer by that alone.

    Where it is over, and goes on because the holder is the first, until its next piece begins.
    """
    left_ns = quantum_ns - served_ns
    if holder.piece.is_foreseen(holder.served_ns):
        return max(left_ns, holder.piece.most_left_ns(holder.served_ns))
    return left_ns if left_ns > 0 else holder.piece.left_ns(holder.served_ns)


def is_between_iterations(holder: Group) -> bool:
    """One has just ended; also where none is known to have begun."""
    return holder.step_served_ns == holder.served_ns


def turn_ns(stall_ns: int, *, waiting: int, max_hold_ns: int) -> int:
    """GPU time that a turn should last at least, where passing it on takes `stall_ns`.

    Gandiva (Xiao et al., OSDI 2018) keeps a switch below 2 % of a quantum. `waiting` groups wait
    for their turn one behind the other, and none should be held for longer than `max_hold_ns`.
    """
    return min(STALLS * stall_ns, max_hold_ns // max(1, waiting))


def left_ns(holder: Group, *, served_ns: int, quantum_ns: int) -> int:
    """GPU time until `is_over` may change its answer; 0 or less: at any time now."""
    slack_ns = quantum_ns // _SLACK if holder.step_cost_ns else 0
    return quantum_ns - slack_ns - served_ns

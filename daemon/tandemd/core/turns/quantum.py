"""When a turn is over: after a quantum of GPU time, or at the end of an iteration close to that.

A hand-over in mid-iteration must wait until the queue drains, and cuts work that runs best as a
whole; at the end of an iteration the queue is empty anyway. So where iterations are known, a
quantum may be a quarter shorter or longer. Over time nobody gains: fair queueing counts what was
used.

Where a policy orders pieces of work (pieces.py), a turn is one piece, whatever it costs. A piece
that takes longer than any before is over after a quantum.
"""

from __future__ import annotations

from tandemd.core.model import Group

STALLS = 50  # a turn lasts this many times the hand-over, which thus costs 2 % at most
_SLACK = 4  # divisor: the part of a quantum by which its end may move


def is_over(holder: Group, *, served_ns: int, quantum_ns: int) -> bool:
    """Tell whether the holder, after `served_ns` of GPU time in this turn, has had its quantum."""
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
    """Like `is_over`, where turns are pieces of work."""
    piece = holder.piece
    if piece.is_foreseen(holder.served_ns):
        return served_ns > 0 and piece.is_fresh(holder.served_ns)
    return served_ns >= quantum_ns


def left_of_piece_ns(holder: Group, *, served_ns: int, quantum_ns: int) -> int:
    """GPU time until `is_piece_over` may change its answer through GPU time alone.

    If the piece is over but the holder goes on because it is first, until its next piece begins.
    """
    left_ns = quantum_ns - served_ns
    if holder.piece.is_foreseen(holder.served_ns):
        return max(left_ns, holder.piece.most_left_ns(holder.served_ns))
    return left_ns if left_ns > 0 else holder.piece.left_ns(holder.served_ns)


def is_between_iterations(holder: Group) -> bool:
    """Tell whether an iteration has just ended; also true if none is known to have begun."""
    return holder.step_served_ns == holder.served_ns


def turn_ns(stall_ns: int, *, waiting: int, max_hold_ns: int) -> int:
    """Least GPU time of a turn if passing it on takes `stall_ns`.

    Gandiva (Xiao et al., OSDI 2018) keeps a switch below 2 % of a quantum. `waiting` groups wait
    for their turn one after the other, and none should be held for longer than `max_hold_ns`.
    """
    return min(STALLS * stall_ns, max_hold_ns // max(1, waiting))


def left_ns(holder: Group, *, served_ns: int, quantum_ns: int) -> int:
    """GPU time until `is_over` may change its answer; 0 or less: at any time now."""
    slack_ns = quantum_ns // _SLACK if holder.step_cost_ns else 0
    return quantum_ns - slack_ns - served_ns

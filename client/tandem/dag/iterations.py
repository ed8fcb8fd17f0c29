"""Finds the iterations of a window.

The program's marks are exact and take precedence. Otherwise iterations are detected as the daemon
does, from what each thread submits (docs/iterations.md). A window is finite, so what the detector
learns late also holds for earlier iterations: it reads everything twice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tandem._native import IterationFinder, OperationKind
from tandem.dag.as_records import is_looked_at, record_of
from tandem.dag.model import Operation, Window
from tandem.errors import UsageError

_LAUNCHES = (OperationKind.LAUNCH, OperationKind.GRAPH)


def with_iterations(window: Window) -> Window:
    """Return the window with its iterations; unchanged if the program marked them."""
    if window.iterations:
        return window
    return replace(window, iterations=find_iterations(window.operations))


def find_iterations(operations: Sequence[Operation]) -> tuple[tuple[int, int], ...]:
    """Each iteration's first operation and the one after its last, in the busiest thread."""
    thread = busiest_thread(operations)
    places = [i for i, op in enumerate(operations) if op.thread == thread and is_looked_at(op)]
    records = b"".join(record_of(operations[place], place) for place in places)
    finder = IterationFinder()
    finder.take(records)
    begins = finder.take(records) if finder.found else []
    found = list(pairwise(sorted(set(begins))))
    # On the second pass the last operation preceded the first one. So what a program does before
    # its loop may have been taken for the first iteration.
    if found and found[0][0] == places[0]:
        first, *others = (_launches(operations[slice(*pair)], thread) for pair in found[:2])
        del found[: first not in (others or [finder.launches])]
    if begins and _is_whole(operations[begins[-1] :], thread, finder.launches):
        found.append((begins[-1], len(operations)))
    return tuple(found)


def busiest_thread(operations: Sequence[Operation]) -> int | None:
    """The thread with the most launches; None: none launches."""
    launches = Counter(op.thread for op in operations if op.kind in _LAUNCHES)
    return max(launches, key=lambda thread: (launches[thread], -thread), default=None)


def bounds(window: Window, iteration: int | None) -> tuple[int, int]:
    """The operations of an iteration, counted from 1: the first, and the one after the last.

    `iteration` None means the whole window.

    Raises:
        UsageError: there is no such iteration; the text says how many there are.
    """
    if iteration is None:
        return 0, len(window.operations)
    count = len(window.iterations)
    if 1 <= iteration <= count:
        return window.iterations[iteration - 1]
    if count:
        raise UsageError(f"'{window.source}' has iterations 1 to {count}, but no {iteration}")
    raise UsageError(
        f"'{window.source}' has no iteration {iteration}: no iterations were found in it; omit "
        "--iteration to see everything"
    )


def _is_whole(tail: Sequence[Operation], thread: int | None, usual: int) -> bool:
    # What follows the last boundary is an iteration if it launches about as much as the others.
    return 0 < usual <= _launches(tail, thread) < 2 * usual


def _launches(operations: Sequence[Operation], thread: int | None) -> int:
    return sum(op.thread == thread and op.kind in _LAUNCHES for op in operations)

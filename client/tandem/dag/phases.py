"""Forward, backward and update of one training iteration, as docs/iterations.md defines them.

Of a running job its records say it, with the program's marks (from_job). Recordings have no marks:
there what the process that launches most submits is looked at, all threads of it.
"""

from collections.abc import Sequence

from tandem._native import OperationKind, split_phases
from tandem.dag.as_records import is_looked_at, record_of
from tandem.dag.iterations import busiest_thread
from tandem.dag.model import Operation, Window

PHASES = {"F": "forward", "B": "backward", "U": "update"}
_LAUNCHES = (OperationKind.LAUNCH, OperationKind.GRAPH)


def phases_of(window: Window, first: int, last: int) -> dict[int, str]:
    """Launch -> its phase, by numbers of operations.

    Empty where it is not known, and of anything but one whole iteration.
    """
    is_whole = not any(first <= gap <= last for gap in window.gaps)
    if (first, last) not in window.iterations or not is_whole:
        return {}
    places = _of_main_process(window, first, last)
    letters = window.phases
    if letters is None:
        letters = _split([window.operations[place] for place in places])
    launches = [place for place in places if window.operations[place].kind in _LAUNCHES]
    named = zip(launches, letters, strict=bool(letters))
    return {place: PHASES[letter] for place, letter in named if letter in PHASES}


def _of_main_process(window: Window, first: int, last: int) -> list[int]:
    thread = busiest_thread(window.operations[first:last])
    if thread is None:
        return []
    process = window.threads[thread].process
    operations = window.operations
    return [
        i for i in range(first, last) if window.threads[operations[i].thread].process == process
    ]


def _split(operations: Sequence[Operation]) -> str:
    looked_at = filter(is_looked_at, operations)
    return split_phases(b"".join(record_of(op, place) for place, op in enumerate(looked_at)))

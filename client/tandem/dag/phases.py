"""Forward, backward and update of one training iteration, as docs/iterations.md defines them.

For a running job they follow from its records and the program's marks (from_job). For a recording,
they follow from what all threads of the process that launches most submit, and from its marks.
"""

from collections.abc import Sequence
from operator import itemgetter

from tandem._native import OperationKind, split_phases
from tandem.dag.as_records import is_looked_at, record_of, record_of_mark
from tandem.dag.iterations import busiest_thread
from tandem.dag.model import STEP, Mark, Window

PHASES = {"F": "forward", "B": "backward", "U": "update"}
_LAUNCHES = (OperationKind.LAUNCH, OperationKind.GRAPH)


def phases_of(window: Window, first: int, last: int) -> dict[int, str]:
    """Map launches to their phases, by operation number.

    Empty if the phases are not known, and for anything but one whole iteration.
    """
    is_whole = not any(first <= gap <= last for gap in window.gaps)
    if (first, last) not in window.iterations or not is_whole:
        return {}
    places = _of_main_process(window, first, last)
    letters = window.phases
    if letters is None:
        letters = _split(window, places, _marks_in(window.marks, first, last))
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


def _marks_in(marks: Sequence[Mark], first: int, last: int) -> list[Mark]:
    # Several marks may precede one operation; those before a step belong to the iteration it ends.
    inside: list[Mark] = []
    for mark in marks:
        if mark.kind == STEP and mark.place >= last:
            break
        if mark.kind == STEP:
            inside.clear()
        elif first <= mark.place <= last:
            inside.append(mark)
    return inside


def _split(window: Window, places: Sequence[int], marks: Sequence[Mark]) -> str:
    looked_at = (place for place in places if is_looked_at(window.operations[place]))
    rows = [(mark.place, 0, mark) for mark in marks] + [(place, 1, None) for place in looked_at]
    rows.sort(key=itemgetter(0, 1))  # stable: keeps the order of marks
    records = (
        record_of_mark(mark, time) if mark else record_of(window.operations[place], time)
        for time, (place, _, mark) in enumerate(rows)
    )
    return split_phases(b"".join(records))

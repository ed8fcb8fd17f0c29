"""The life cycle of a job as a table: (state, stimulus) -> state.

A missing pair is a bug and raises with the job's story. `PAUSED` absorbs all activity of the job's
processes: a person's pause stands until a person lifts it.
"""

from __future__ import annotations

from enum import Enum

from tandemd.core.errors import IllegalTransitionError
from tandemd.core.model import Job, JobState


class Stimulus(Enum):
    """What can happen to a job's state."""

    ATTACHED = "a process attached"
    BUSY = "it has work on the gpu"
    BLOCKED = "its work waits"
    QUIET = "it has no work"
    LEFT = "its last process left"
    TURNED_AWAY = "it runs unshared"
    PAUSED = "paused"
    RESUMED = "resumed"
    RESUMED_EMPTY = "resumed without processes"
    MOVED_OUT = "memory of it is on the host"
    MOVED_BACK = "all its memory is on the gpu"
    EXITED = "it ended"


S, T = JobState, Stimulus

TABLE: dict[tuple[JobState, Stimulus], JobState] = {
    (S.STARTING, T.ATTACHED): S.IDLE,
    (S.STARTING, T.TURNED_AWAY): S.DETACHED,
    (S.STARTING, T.PAUSED): S.PAUSED,
    (S.STARTING, T.EXITED): S.EXITED,
    (S.IDLE, T.ATTACHED): S.IDLE,
    (S.IDLE, T.BUSY): S.RUNNING,
    (S.IDLE, T.BLOCKED): S.WAITING,
    (S.IDLE, T.QUIET): S.IDLE,
    (S.IDLE, T.LEFT): S.DETACHED,
    (S.IDLE, T.PAUSED): S.PAUSED,
    (S.RUNNING, T.ATTACHED): S.RUNNING,
    (S.RUNNING, T.BUSY): S.RUNNING,
    (S.RUNNING, T.BLOCKED): S.WAITING,
    (S.RUNNING, T.QUIET): S.IDLE,
    (S.RUNNING, T.LEFT): S.DETACHED,
    (S.RUNNING, T.PAUSED): S.PAUSED,
    (S.WAITING, T.ATTACHED): S.WAITING,
    (S.WAITING, T.BUSY): S.RUNNING,
    (S.WAITING, T.BLOCKED): S.WAITING,
    (S.WAITING, T.QUIET): S.IDLE,
    (S.WAITING, T.LEFT): S.DETACHED,
    (S.WAITING, T.PAUSED): S.PAUSED,
    (S.PAUSED, T.ATTACHED): S.PAUSED,
    (S.PAUSED, T.BUSY): S.PAUSED,
    (S.PAUSED, T.BLOCKED): S.PAUSED,
    (S.PAUSED, T.QUIET): S.PAUSED,
    (S.PAUSED, T.LEFT): S.PAUSED,
    (S.PAUSED, T.PAUSED): S.PAUSED,
    (S.PAUSED, T.RESUMED): S.IDLE,
    (S.PAUSED, T.RESUMED_EMPTY): S.DETACHED,
    (S.PAUSED, T.EXITED): S.EXITED,
    (S.PAUSED, T.MOVED_OUT): S.SWAPPED,
    (S.SWAPPED, T.MOVED_OUT): S.SWAPPED,
    (S.SWAPPED, T.ATTACHED): S.SWAPPED,
    (S.SWAPPED, T.BUSY): S.SWAPPED,
    (S.SWAPPED, T.BLOCKED): S.SWAPPED,
    (S.SWAPPED, T.QUIET): S.SWAPPED,
    (S.SWAPPED, T.PAUSED): S.SWAPPED,
    (S.SWAPPED, T.MOVED_BACK): S.PAUSED,
    (S.SWAPPED, T.RESUMED): S.WAITING,  # waits for its memory
    (S.SWAPPED, T.LEFT): S.PAUSED,
    (S.DETACHED, T.ATTACHED): S.IDLE,
    (S.DETACHED, T.PAUSED): S.PAUSED,
    (S.DETACHED, T.EXITED): S.EXITED,
}


def advance(job: Job, stimulus: Stimulus) -> bool:
    """Move the job along the table; return whether its state changed.

    Raises:
        IllegalTransitionError: the table has no such row.
    """
    try:
        state = TABLE[job.state, stimulus]
    except KeyError:
        story = "; ".join(f"{at_ns} {line}" for at_ns, line in job.story)
        raise IllegalTransitionError(
            f"job {job.display_name} is {job.state.name}, so '{stimulus.value}' cannot happen; "
            f"its story: {story}"
        ) from None
    changed = state is not job.state
    job.state = state
    return changed

"""Which groups became one, because their processes share something on the GPU.

Processes that map each other's memory or wait for each other's events would deadlock if one were
held and the other not. A shim says what it shares by a key that is the same in all processes that
share it; keys of different uids are different things. What was joined stays so as long as any of
its jobs lives: what they still have of each other is not to be seen from outside.
"""

from __future__ import annotations

from tandemd.core.model import Group, GroupKey, Job

MAX_KEYS = 1024  # of one job: what it says beyond that ties nobody


class Ties:
    """What each job shares, and under which key its group is known now."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], set[int]] = {}  # uid, key -> jobs
        self._keys: dict[int, set[tuple[int, int]]] = {}  # job -> what it shares
        self._joined: dict[GroupKey, GroupKey] = {}  # a group that is no more -> what it is part of

    def share(self, job: Job, key: int) -> set[int]:
        """The job has the thing; the other jobs that have it, too."""
        thing = (job.uid, key)
        keys = self._keys.setdefault(job.job_id, set())
        if thing not in keys and len(keys) >= MAX_KEYS:
            return set()
        keys.add(thing)
        jobs = self._jobs.setdefault(thing, set())
        jobs.add(job.job_id)
        return jobs - {job.job_id}

    def forget_job(self, job_id: int) -> None:
        """It ended."""
        for thing in self._keys.pop(job_id, ()):
            self._jobs[thing].discard(job_id)
            if not self._jobs[thing]:
                del self._jobs[thing]

    def forget_group(self, key: GroupKey) -> None:
        """Nobody is left in it."""
        self._joined = {old: new for old, new in self._joined.items() if new != key}

    def home_of(self, key: GroupKey) -> GroupKey:
        """The group that a group of that key is part of."""
        return self._joined.get(key, key)

    def join(self, survivor: Group, other: Group) -> None:
        """Move everything of the other group over; the survivor keeps its turn and its service."""
        for old, new in self._joined.items():
            if new == other.key:
                self._joined[old] = survivor.key
        self._joined[other.key] = survivor.key
        for job in other.jobs.values():
            job.home = survivor.key
        survivor.jobs |= other.jobs
        survivor.processes |= other.processes
        survivor.is_tied = True
        survivor.arrival = min(survivor.arrival, other.arrival)
        survivor.virtual_ns = max(survivor.virtual_ns, other.virtual_ns)
        survivor.undrainable |= other.undrainable
        held = [g.hold_since_ns for g in (survivor, other) if g.hold_since_ns is not None]
        survivor.hold_since_ns = min(held, default=None)

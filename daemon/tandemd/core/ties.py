"""Groups merged because their processes share something on the GPU.

Processes that map each other's memory or wait for each other's events would deadlock if only one of
them were held. A shim names what it shares by a key that is the same in all processes that share
it; the same key of another uid means another thing. A merged group stays merged as long as any of
its jobs lives, because what they still share cannot be seen from outside.
"""

from __future__ import annotations

from tandemd.core.model import Group, GroupKey, Job

MAX_KEYS = 1024  # per job; further keys tie nobody


class Ties:
    """What each job shares, and the key under which each merged group is now known."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], set[int]] = {}  # uid, key -> jobs
        self._keys: dict[int, set[tuple[int, int]]] = {}  # job -> what it shares
        # Key of a merged group -> key of the group it is in.
        self._joined: dict[GroupKey, GroupKey] = {}

    def share(self, job: Job, key: int) -> set[int]:
        """Note that the job has the thing; return the other jobs that have it."""
        thing = (job.uid, key)
        keys = self._keys.setdefault(job.job_id, set())
        if thing not in keys and len(keys) >= MAX_KEYS:
            return set()
        keys.add(thing)
        jobs = self._jobs.setdefault(thing, set())
        jobs.add(job.job_id)
        return jobs - {job.job_id}

    def forget_job(self, job_id: int) -> None:
        """Drop a job that has ended."""
        for thing in self._keys.pop(job_id, ()):
            self._jobs[thing].discard(job_id)
            if not self._jobs[thing]:
                del self._jobs[thing]

    def forget_group(self, key: GroupKey) -> None:
        """Drop a group that has no jobs left."""
        self._joined = {old: new for old, new in self._joined.items() if new != key}

    def home_of(self, key: GroupKey) -> GroupKey:
        """The key of the group that now contains the group with this key."""
        return self._joined.get(key, key)

    def join(self, survivor: Group, other: Group) -> None:
        """Merge `other` into the survivor, which keeps its turn and its service."""
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

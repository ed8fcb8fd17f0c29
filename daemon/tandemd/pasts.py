"""Jobs that have just ended, on their way into the state file.

They are written at once, and again when the last part of their energy is known, which comes with
the next reading.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tandemd.core.energy import EnergyLedger
from tandemd.core.past import PastJob
from tandemd.remembered import Remembered


class Pasts:
    """Keeps ended jobs and completes their energy. Belongs to the loop's thread."""

    def __init__(self, remembered: Remembered, energy: EnergyLedger) -> None:
        self._remembered = remembered
        self._energy = energy
        self._incomplete: dict[int, PastJob] = {}  # by job, as they were written

    def keep(self, job: PastJob) -> bool:
        """Write a job that has ended; returns whether a part of its energy is still to come."""
        known = replace(job, energy_mj=self._energy.of_job(job.job_id))
        self._remembered.keep_past(known)
        if is_owed := self._energy.owes(job.job_id):
            self._incomplete[job.job_id] = known
        return is_owed

    def complete(self) -> None:
        """Correct the ended jobs that the latest energy reading completed."""
        for job_id, kept in list(self._incomplete.items()):
            if self._energy.owes(job_id):
                continue  # another of its GPUs has had no reading
            del self._incomplete[job_id]
            whole = replace(kept, energy_mj=self._energy.of_job(job_id))
            if whole != kept:
                self._remembered.correct_past(kept, whole)

    def forget_but(self, known: Container[int]) -> None:
        """Stop waiting for the energy of all jobs but these."""
        kept = self._incomplete.items()
        self._incomplete = {job_id: job for job_id, job in kept if job_id in known}

"""Energy: how much each GPU used by its driver's count, and how much of that each job used.

The driver counts the energy of a whole GPU. The ledger divides what it counted between two readings
by time: a job gets the fraction of the interval in which its work ran, measured by the GPU time
charged to it there; work that ran side by side is charged a part each. A job's energy thus covers
all that the GPU used while its work ran, including what an idle GPU would have used, at the average
power of the interval. It does not cover what the GPU used while no job's work ran, or while
processes ran that belong to no job: that is attributed to nobody. It also leaves out GPUs on which
no time is charged to the job (all but a process's first), and the host.

This is an attribution, not a measurement: the energy of a kernel is unknown, and light work is
charged like heavy work if both ran in the same interval.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """Energy that a GPU used since its counter was first read."""

    total_mj: int = 0
    unattributed_mj: int = 0  # part of it while no job's work ran


@dataclass(slots=True)
class _Meter:
    """Energy meter of one GPU."""

    counted_mj: int  # the driver's counter at the last reading
    read_ns: int  # time of the last reading
    so_far: Metered = field(default_factory=Metered)
    charged_ns: dict[int, int] = field(default_factory=dict)  # by job, since the last reading

    def read(self, counted_mj: int, at_ns: int) -> dict[int, int]:
        """Divide what was counted since the last reading; return each job's part.

        A counter that went back was reset, as by a new driver; what it missed is unknown.
        """
        charged_ns, self.charged_ns = self.charged_ns, {}
        spent_mj = max(0, counted_mj - self.counted_mj)
        # Charges may reach back before the interval, and then exceed its length.
        whole_ns = max(1, at_ns - self.read_ns, sum(charged_ns.values()))
        parts_mj = {job_id: spent_mj * ns // whole_ns for job_id, ns in charged_ns.items()}
        self.counted_mj, self.read_ns = counted_mj, at_ns
        nobodys_mj = spent_mj - sum(parts_mj.values())
        self.so_far = Metered(
            total_mj=self.so_far.total_mj + spent_mj,
            unattributed_mj=self.so_far.unattributed_mj + nobodys_mj,
        )
        return parts_mj


class EnergyLedger:
    """Energy by job, for all GPUs whose driver counts it. Figures never go back."""

    def __init__(self) -> None:
        self._meters: dict[int, _Meter] = {}  # by GPU
        self._jobs_mj: dict[int, int] = {}

    def charge(self, job_id: int, gpu: int, spent_ns: int) -> None:
        """Charge a job GPU time; without effect until the GPU's energy has been read once."""
        if spent_ns > 0 and (meter := self._meters.get(gpu)) is not None:
            meter.charged_ns[job_id] = meter.charged_ns.get(job_id, 0) + spent_ns

    def read(self, counted_mj: Mapping[int, int], at_ns: int) -> None:
        """Take in the drivers' counters; GPUs that are missing have no reading now."""
        for gpu, now_mj in counted_mj.items():
            if (meter := self._meters.get(gpu)) is None:
                self._meters[gpu] = _Meter(now_mj, at_ns)
                continue
            for job_id, part_mj in meter.read(now_mj, at_ns).items():
                self._jobs_mj[job_id] = self._jobs_mj.get(job_id, 0) + part_mj

    def owes(self, job_id: int) -> bool:
        """Tell whether the job ran since the last reading, so that the next one adds to it."""
        return any(job_id in meter.charged_ns for meter in self._meters.values())

    def of_job(self, job_id: int) -> int | None:
        """The job's part so far, in mJ; None: it never ran on a metered GPU, or only just did."""
        return self._jobs_mj.get(job_id)

    def of_gpu(self, gpu: int) -> Metered | None:
        """All energy since the GPU was first read; None: it never was."""
        meter = self._meters.get(gpu)
        return None if meter is None else meter.so_far

    def forget_but(self, known: Container[int]) -> None:
        """Drop all jobs but these."""
        self._jobs_mj = {job: mj for job, mj in self._jobs_mj.items() if job in known}
        for meter in self._meters.values():
            meter.charged_ns = {job: ns for job, ns in meter.charged_ns.items() if job in known}

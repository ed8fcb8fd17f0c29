"""Energy: how much a GPU took by its driver's count, and which part of that is whose.

The driver counts the energy of a whole GPU. What it counted between two readings is shared out by
the time between them: a job gets as large a part of it as its work ran of that time, by the GPU
time that it was charged there; of work that ran side by side each is charged its part. So in the
energy of a job is all that the GPU took while its work ran, what it would have taken idle included,
at the average power of the interval. Not in it is what the GPU took while no job's work ran, or
that of processes which are no job's: that is the GPU's own, and nobody's. Nor is anything in it of
GPUs where no time is charged to the job (all but the first of a process), nor of the host.

It is an attribution, not a measurement: how much a kernel takes is not known, and work that takes
little is told as much as work that takes much if both ran in the same interval.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """What a GPU took since its energy was first read."""

    total_mj: int = 0
    unattributed_mj: int = 0  # of that: no job's work ran


@dataclass(slots=True)
class _Meter:
    """One GPU."""

    counted_mj: int  # by the driver, when it was read last
    read_ns: int  # when that was
    so_far: Metered = field(default_factory=Metered)
    charged_ns: dict[int, int] = field(default_factory=dict)  # by job, since it was read

    def read(self, counted_mj: int, at_ns: int) -> dict[int, int]:
        """Share out what was counted since the reading before; returns what each job gets.

        A counter that went back began anew, as with a new driver; nobody knows what was between.
        """
        charged_ns, self.charged_ns = self.charged_ns, {}
        spent_mj = max(0, counted_mj - self.counted_mj)
        # What is charged may be of just before the interval, and be more than there is of that.
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
    """Whose energy how much was, of all GPUs whose driver counts it. Figures never go back."""

    def __init__(self) -> None:
        self._meters: dict[int, _Meter] = {}  # by GPU
        self._jobs_mj: dict[int, int] = {}

    def charge(self, job_id: int, gpu: int, spent_ns: int) -> None:
        """Work of the job ran there for so long; nothing where no energy was read so far."""
        if spent_ns > 0 and (meter := self._meters.get(gpu)) is not None:
            meter.charged_ns[job_id] = meter.charged_ns.get(job_id, 0) + spent_ns

    def read(self, counted_mj: Mapping[int, int], at_ns: int) -> None:
        """Take in what the drivers of these GPUs have counted; of others nothing is known now."""
        for gpu, now_mj in counted_mj.items():
            if (meter := self._meters.get(gpu)) is None:
                self._meters[gpu] = _Meter(now_mj, at_ns)
                continue
            for job_id, part_mj in meter.read(now_mj, at_ns).items():
                self._jobs_mj[job_id] = self._jobs_mj.get(job_id, 0) + part_mj

    def owes(self, job_id: int) -> bool:
        """Whether work of the job ran since the last reading: its part comes with the next."""
        return any(job_id in meter.charged_ns for meter in self._meters.values())

    def of_job(self, job_id: int) -> int | None:
        """Its part so far, in mJ; None: no work of it ran where energy is read, or just now."""
        return self._jobs_mj.get(job_id)

    def of_gpu(self, gpu: int) -> Metered | None:
        """All of it since it was first read; None: it was not."""
        meter = self._meters.get(gpu)
        return None if meter is None else meter.so_far

    def forget_but(self, known: Container[int]) -> None:
        """No job but these will be asked for."""
        self._jobs_mj = {job: mj for job, mj in self._jobs_mj.items() if job in known}
        for meter in self._meters.values():
            meter.charged_ns = {job: ns for job, ns in meter.charged_ns.items() if job in known}

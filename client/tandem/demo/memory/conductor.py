"""The memory demo from start to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tandem.demo.memory.report import Comparison, Results
from tandem.demo.memory.scenario import Stage, measure
from tandem.demo.memory.settings import NOTEBOOKS, TRAINERS, Kind, Pace, default_seconds, paces
from tandem.demo.place import find_place
from tandem.demo.scenario import Say

PROFILE = "mini"  # little memory, so that moving it takes the CPU only milliseconds
SWAPPABLE = ("--swappable",)


@dataclass(frozen=True, kw_only=True)
class Conductor:
    """Runs the scenarios on the device that `prepare` found and measured. One thread."""

    stage: Stage
    memory_bytes: int
    link_bytes_s: float
    trainer: Pace
    notebook: Pace

    @staticmethod
    def prepare(*, clock: str, seconds: float | None, folder: Path, say: Say) -> Conductor:
        """Find and measure the device; without `seconds`, run long enough for several turns.

        Raises:
            WorkerError: the kernels do not compile, or do not run.
        """
        found = find_place(clock=clock, folder=folder, profile=PROFILE)
        measured = measure(found, folder / "measure")
        place = replace(found, name=str(measured["name"]))
        memory_bytes, link_bytes_s = int(measured["memory_bytes"]), float(measured["link_bytes_s"])
        say(
            f"device: {place.name} ({place.kind}), mode {place.mode}, {place.clock} clock, "
            f"{memory_bytes / 2**20:.0f} MiB, pinned copies {link_bytes_s / 1e9:.1f} GB/s"
        )
        chosen_s = seconds or default_seconds(memory_bytes=memory_bytes, link_bytes_s=link_bytes_s)
        trainer, notebook = paces(seconds=chosen_s, iteration_ns=measured["iteration_ns"])
        say(f"each trainer computes for about {chosen_s:.1f} s: {trainer.iterations} iterations")
        return Conductor(
            stage=Stage(place=place, folder=folder, say=say),
            memory_bytes=memory_bytes,
            link_bytes_s=link_bytes_s,
            trainer=trainer,
            notebook=notebook,
        )

    def run(self) -> Results:
        """Run all scenarios, one after the other.

        Raises:
            WorkerError: a program hangs, or the daemon failed; the text quotes its last words.
        """
        return Results(
            place=self.stage.place,
            memory_bytes=self.memory_bytes,
            link_bytes_s=self.link_bytes_s,
            trainers=self.compare(TRAINERS, self.trainer),
            notebooks=self.compare(NOTEBOOKS, self.notebook),
        )

    def compare(self, kind: Kind, pace: Pace) -> Comparison:
        """Run one set of jobs in the three ways."""
        say, stage = self.stage.say, self.stage
        what = f"{len(kind.roles)} {kind.name} of {kind.share:.0%} of the memory each"
        say(f"{what}, without Tandem")
        unmanaged = stage.run(f"unmanaged-{kind.name}", kind, pace)
        say(f"{what}, one after the other")
        serial = stage.alone(kind, pace)
        say(f"{what}, under Tandem")
        ticktock = stage.run(f"ticktock-{kind.name}", kind, pace, options=SWAPPABLE)
        return Comparison(unmanaged=unmanaged, serial=serial, ticktock=ticktock)

"""The demo from start to end: find the device, calibrate, run the scenarios in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.demo.measure import Outcome, noise_ratio
from tandem.demo.place import Place, find_place
from tandem.demo.report import Results
from tandem.demo.scenario import Say, Scenario, Work, calibrate, demo_program
from tandem.demo.settings import REQUESTS_MIN, ROLES, SERVER_LOAD, TRAINERS

NOISY_RATIO = 2.0
TRAINER_ALONE_S = 3.0


@dataclass(kw_only=True)
class Conductor:
    """Runs scenarios under `folder`. One thread; children are ended when a step fails."""

    place: Place
    work: Work
    seconds: float
    folder: Path
    keep: bool
    say: Say

    @staticmethod
    def prepare(
        *, clock: str, seconds: float | None, folder: Path, keep: bool, say: Say
    ) -> Conductor:
        """Find and measure the device; without `seconds`, run as long as a p99 needs.

        Raises:
            WorkerError: the kernels do not compile, or do not run.
        """
        found = find_place(clock=clock, folder=folder)
        measured = calibrate(found, folder / "calibrate")
        place = replace(found, name=str(measured["name"]))
        say(f"device: {place.name} ({place.kind}), mode {place.mode}, {place.clock} clock")
        request_ns = int(measured["request_ns"])
        gap_ns = int(request_ns / SERVER_LOAD)
        say(
            f"calibrated: a request needs {request_ns / 1e6:.2f} ms of the GPU, "
            f"one comes every {gap_ns / 1e6:.1f} ms"
        )
        work = Work(blocks=int(measured["blocks"]), request_ns=request_ns, gap_ns=gap_ns)
        chosen_s = seconds if seconds is not None else default_seconds(gap_ns)
        return Conductor(
            place=place, work=work, seconds=chosen_s, folder=folder, keep=keep, say=say
        )

    def run(self) -> Results:
        """Run all scenarios, one after the other.

        Raises:
            WorkerError: a program failed; the text quotes its last words.
        """
        *_, results = self.runs()
        return results

    def runs(self) -> Iterator[Results]:
        """Like `run`, yielding results after all have run alone, and after each shared scenario.

        Raises:
            WorkerError: a program failed; the text quotes its last words.
        """
        notes: list[str] = []
        alone = {"server": self._server_alone(notes)}
        for role in TRAINERS:
            seconds = min(self.seconds, TRAINER_ALONE_S)
            alone[role] = self._run("alone", [role], seconds=seconds)
        results = Results(
            place=self.place,
            alone=alone,
            shared={},
            request_ns=self.work.request_ns,
            notes=notes,
        )
        yield results
        for name in ("unmanaged", "tandem"):
            outcome = self._run(name, ROLES, managed=name == "tandem")
            results = replace(results, shared={**results.shared, name: outcome})
            yield results

    def _server_alone(self, notes: list[str]) -> Outcome:
        outcome = self._run("alone", ["server"])
        noise = _noise(outcome)
        if noise <= NOISY_RATIO:
            return outcome
        self.say(f"the machine is noisy (service time p99/p50 {noise:.1f}), repeating this run")
        again = self._run("alone", ["server"], label="alone-server-again")
        notes.append(
            f"the server's alone run was noisy (service time p99/p50 {noise:.1f}) and was "
            f"repeated ({_noise(again):.1f})"
        )
        return again if _noise(again) < noise else outcome

    def _run(
        self,
        name: str,
        roles: Sequence[str],
        *,
        seconds: float | None = None,
        managed: bool = False,
        label: str = "",
    ) -> Outcome:
        self.say(f"{name}: {', '.join(roles)}")
        length_s = self.seconds if seconds is None else seconds
        with Scenario(
            name=name,
            place=self.place,
            program=demo_program(self.place, self.work, seconds=length_s),
            roles=roles,
            seconds=length_s,
            folder=self.folder / (label or "-".join([name, *roles])),
            managed=managed,
            keep=self.keep and managed,
            say=self.say,
        ) as scenario:
            return scenario.run()


def default_seconds(gap_ns: int) -> float:
    """Long enough for REQUESTS_MIN requests, with three standard deviations to spare."""
    enough = REQUESTS_MIN + 3 * math.sqrt(REQUESTS_MIN)
    return enough * gap_ns / 1e9


def _noise(outcome: Outcome) -> float:
    server = outcome.worker("server")
    return noise_ratio(server) if server is not None and server.items else 0.0

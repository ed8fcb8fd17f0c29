"""Runs many random programs bare and managed; writes the results as JSON.

    python tests/proof/soak.py [--programs 10000] [--seed 1] [--seconds N] [--gpu] [--result FILE]
                               [--first N] [--processes N] [--tandemd] [--sets] [--failed FOLDER]
    python tests/proof/soak.py --replay FAILED.json [--sets]

Program N of seed S is always the same. A program that differs is shortened while there is time,
printed as a list of calls, and written to build/proof/ (or FOLDER), from where it can be replayed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing.util
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import proof_coverage as coverage
from proof_compare import differences
from proof_generator import Code, build, random_codes
from proof_program import Program, program_of
from proof_stage import ROOT, Outcome, Stage

FAILED = ROOT / "build/proof"
SHORTEN_S = 60.0  # the longest that shortening a program may take
AT_A_TIME = 20  # programs for each task; on a GPU, where each takes seconds, one


@dataclass(kw_only=True)
class Tally:
    """The results of some programs; calls are counted in the bare runs."""

    programs: int = 0
    differences: int = 0
    waited: int = 0
    switches: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    subjects: Counter[str] = field(default_factory=Counter)  # calls that succeeded
    handlers: set[str] = field(default_factory=set)

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.differences += other.differences
        self.waited += other.waited
        self.switches += other.switches
        self.calls += other.calls
        self.codes += other.codes
        self.subjects += other.subjects
        self.handlers |= other.handlers

    def count(self, program: Program, bare: Outcome, managed: Outcome) -> None:
        self.programs += 1
        self.waited += len(managed.watched.waited) if managed.watched else 0
        self.switches += managed.watched.switches if managed.watched else 0
        reached = coverage.succeeded(program, bare)
        self.subjects += coverage.subjects(reached)
        known = coverage.handlers()
        self.handlers |= {known[step.symbol] for step in reached if step.symbol in known}
        for index, step in enumerate(program.steps):
            if step.symbol.startswith("cu"):
                self.calls[step.symbol] += 1
                self.codes[(bare.steps.get(index, "missing").split() or ["none"])[0]] += 1


class Soaker:
    """Runs the programs of one seed, in a process of its own."""

    def __init__(self, wanted: argparse.Namespace, give_up: float) -> None:
        self._wanted = wanted
        self._give_up = give_up  # on time.monotonic()
        self._stage = stage_of(wanted)

    def close(self) -> None:
        self._stage.close()

    def run(self, numbers: range) -> Tally:
        """Run as many of them as there is time for."""
        tally = Tally()
        for number in numbers:
            if time.monotonic() > self._give_up:
                break
            self._run_one(number, tally)
        return tally

    def _run_one(self, number: int, tally: Tally) -> None:
        drawn, tidily = random_codes(random.Random(f"{self._wanted.seed}-{number}"))
        how = {"tidily": tidily, "tame": self._wanted.gpu}
        program = build(drawn, **how)
        bare, managed = self._stage.bare(program), self._stage.managed(program)
        tally.count(program, bare, managed)
        if found := differences(program, bare, managed):
            tally.differences += 1
            report(
                self._stage,
                self._wanted.failed / f"{number}.json",
                drawn,
                how,
                found,
                self._give_up,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--replay", type=Path, metavar="FAILED.json")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then begin no more")
    parser.add_argument("--gpu", action="store_true", help="on the machine's own driver")
    parser.add_argument("--tandemd", action="store_true", help="a daemon process for each run")
    parser.add_argument("--sets", action="store_true", help="of SMs, which change at random")
    parser.add_argument("--processes", type=int, help="side by side; one on a GPU")
    parser.add_argument("--failed", type=Path, default=FAILED, help="folder of those that differ")
    arguments = parser.parse_args()
    if arguments.sets and arguments.tandemd:
        parser.error("--sets: tandemd does not change sets at random; leave out --tandemd")
    if arguments.replay:
        with closing(stage_of(arguments)) as stage:
            return replay(stage, program_of(arguments.replay.read_text()))
    for result in soak(arguments):
        if arguments.result:
            keep(result, arguments.result)
    print(json.dumps(result))
    return 0 if result["differences"] == 0 else 1


def stage_of(wanted: argparse.Namespace) -> Stage:
    return Stage(on_gpu=wanted.gpu, under_tandemd=wanted.tandemd, in_sets=wanted.sets)


def replay(stage: Stage, program: Program) -> int:
    print(program)
    found = compare(stage, program)
    print("\n".join(found) or "no difference")
    return 1 if found else 0


def compare(stage: Stage, program: Program) -> list[str]:
    return differences(program, stage.bare(program), stage.managed(program))


def keep(result: dict[str, object], path: Path) -> None:
    """Write the result atomically, so that a concurrent reader always sees a whole file."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(result, indent=1) + "\n")
    new.replace(path)


def soak(wanted: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Run them all; yield the results so far, then the final ones. Counts are of the bare runs."""
    total, start, told = Tally(), time.monotonic(), 0
    for tally in tallies(wanted, start + wanted.seconds):
        total.add(tally)
        if total.programs >= told + 10 * AT_A_TIME:
            told = total.programs
            rate = told / (time.monotonic() - start)
            print(f"{told} programs, {total.differences} differ, {rate:.0f}/s", file=sys.stderr)
        yield summary(wanted, total, start)
    yield summary(wanted, total, start)


def summary(wanted: argparse.Namespace, total: Tally, start: float) -> dict[str, object]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": "GPU" if wanted.gpu else "software GPU, virtual clock",
        "daemon": "tandemd" if wanted.tandemd else "driven by the test",
        "seed": wanted.seed,
        "programs": total.programs,
        "differences": total.differences,
        "calls": total.calls.total(),
        "threads_held_at_the_gate": total.waited,
        "streams_switched_to_other_sms": total.switches,
        "succeeded_by_subject": dict(sorted(total.subjects.items())),
        "handlers_reached": sorted(total.handlers),
        "handlers": len(set(coverage.handlers().values())),
        "result_codes": dict(sorted(total.codes.items())),
        "calls_by_symbol": dict(sorted(total.calls.items())),
        "seconds": round(time.monotonic() - start),
    }


def tallies(wanted: argparse.Namespace, give_up: float) -> Iterator[Tally]:
    """Yield the results of a few programs at a time, as they arrive."""
    processes = wanted.processes or (1 if wanted.gpu else os.cpu_count() or 1)
    end = wanted.first + wanted.programs
    size = 1 if wanted.gpu else AT_A_TIME
    pieces = [range(start, min(start + size, end)) for start in range(wanted.first, end, size)]
    with ProcessPoolExecutor(processes, initializer=begin, initargs=(wanted, give_up)) as pool:
        for tally in pool.map(run, pieces):
            yield tally
            if time.monotonic() > give_up:
                return


_soaker: list[Soaker] = []  # one in each process


def begin(wanted: argparse.Namespace, give_up: float) -> None:
    soaker = Soaker(wanted, give_up)
    _soaker.append(soaker)
    multiprocessing.util.Finalize(soaker, soaker.close, exitpriority=1)


def run(numbers: range) -> Tally:
    return _soaker[0].run(numbers)


def report(
    stage: Stage,
    path: Path,
    drawn: list[Code],
    how: dict[str, bool],
    found: list[str],
    give_up: float,
) -> None:
    """Write the whole program first: there may be no time left to shorten it."""
    keep_program(path, build(drawn, **how), found)
    program = build(shorten(stage, drawn, how, give_up), **how)
    words = keep_program(path, program, compare(stage, program) or ["(not every time)", *found])
    print(f"program {path.stem} differs; shortened, in {path}:\n{words}", flush=True)


def keep_program(path: Path, program: Program, found: list[str]) -> str:
    """Write a program for replay, and beside it a text for people, which is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program.json())
    words = "\n".join([str(program), *found])
    path.with_suffix(".txt").write_text(words + "\n")
    return words


def shorten(stage: Stage, drawn: list[Code], how: dict[str, bool], give_up: float) -> list[Code]:
    """Leave out what the difference does not need, in ever smaller pieces, while there is time."""
    best, piece = drawn, max(len(drawn) // 2, 1)
    give_up = min(give_up, time.monotonic() + SHORTEN_S)
    while piece and time.monotonic() < give_up:
        at = 0
        while at < len(best) and time.monotonic() < give_up:
            fewer = best[:at] + best[at + piece :]
            if compare(stage, build(fewer, **how)):
                best = fewer
            else:
                at += piece
        piece //= 2
    return best


if __name__ == "__main__":
    sys.exit(main())

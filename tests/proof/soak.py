"""Many random programs, bare and managed; writes what they came to as JSON.

    python tests/proof/soak.py [--programs 10000] [--seed 1] [--seconds N] [--gpu] [--result FILE]
    python tests/proof/soak.py --replay FAILED.json

Program N of seed S is always the same. One that differs is made shorter, printed as a list of calls
and written to build/proof/, from where it can be replayed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from proof_compare import differences
from proof_generator import Code, build, random_codes
from proof_program import Program, program_of
from proof_stage import ROOT, Stage

FAILED = ROOT / "build/proof"
SHORTEN_S = 60.0  # that making a program shorter may take


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--replay", type=Path, metavar="FAILED.json")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then begin no more")
    parser.add_argument("--gpu", action="store_true", help="on the machine's own driver")
    arguments = parser.parse_args()
    stage = Stage(on_gpu=arguments.gpu)
    try:
        if arguments.replay:
            return replay(stage, program_of(arguments.replay.read_text()))
        result = soak(stage, arguments)
    finally:
        stage.close()
    if arguments.result:
        arguments.result.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0 if result["differences"] == 0 else 1


def replay(stage: Stage, program: Program) -> int:
    print(program)
    found = compare(stage, program)
    print("\n".join(found) or "no difference")
    return 1 if found else 0


def compare(stage: Stage, program: Program) -> list[str]:
    text = program.text()
    return differences(program, stage.bare(text), stage.managed(text))


def soak(stage: Stage, wanted: argparse.Namespace) -> dict[str, object]:
    """Run them all; what is counted is of the bare runs."""
    calls: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    waited = failed = steps = programs = 0
    start = time.monotonic()
    for number in range(wanted.programs):
        if time.monotonic() - start > wanted.seconds:
            break
        programs += 1
        drawn, tidily = random_codes(random.Random(f"{wanted.seed}-{number}"))
        how = {"tidily": tidily, "tame": wanted.gpu}
        program = build(drawn, **how)
        text = program.text()
        bare, managed = stage.bare(text), stage.managed(text)
        waited += len(managed.watched.waited) if managed.watched else 0
        for index, step in enumerate(program.steps):
            if step.symbol.startswith("cu"):
                calls[step.symbol] += 1
                codes[(bare.steps.get(index, "missing").split() or ["none"])[0]] += 1
                steps += 1
        if found := differences(program, bare, managed):
            failed += 1
            report(stage, number, drawn, how, found)
        if number % 200 == 199:
            rate = (number + 1) / (time.monotonic() - start)
            print(f"{number + 1} programs, {failed} differ, {rate:.0f}/s", file=sys.stderr)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": "GPU" if wanted.gpu else "software GPU, virtual clock",
        "seed": wanted.seed,
        "programs": programs,
        "differences": failed,
        "calls": steps,
        "threads_held_at_the_gate": waited,
        "result_codes": dict(sorted(codes.items())),
        "calls_by_symbol": dict(sorted(calls.items())),
        "seconds": round(time.monotonic() - start),
    }


def report(
    stage: Stage, number: int, drawn: list[Code], how: dict[str, bool], found: list[str]
) -> None:
    program = build(shorten(stage, drawn, how), **how)
    FAILED.mkdir(parents=True, exist_ok=True)
    path = FAILED / f"{number}.json"
    path.write_text(program.json())
    print(f"program {number} differs; shortened, in {path}:\n{program}")
    print("\n".join(compare(stage, program) or ["(not every time)", *found]), flush=True)


def shorten(stage: Stage, drawn: list[Code], how: dict[str, bool]) -> list[Code]:
    """Leave out what the difference does not need, ever smaller pieces."""
    best, piece = drawn, max(len(drawn) // 2, 1)
    give_up = time.monotonic() + SHORTEN_S
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

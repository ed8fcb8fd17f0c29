"""`python -m tandemd.sim`: what scheduler settings would achieve for a set of jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tandem._text import printable
from tandem.errors import TandemError, UsageError, exit_code
from tandem.units import parse_duration
from tandemd.core.policy import POLICIES
from tandemd.sim.report import json_of, report_of, text_of
from tandemd.sim.workload import load

EPILOG = """\
examples:
  python -m tandemd.sim jobs.toml                          as in the file
  python -m tandemd.sim jobs.toml --policy fair --policy priority
  python -m tandemd.sim jobs.toml --set scheduler.quantum_ms=5 --until 60s
  python -m tandemd.sim jobs.toml --json

docs/simulator.md describes the file and what is modelled.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a file and print the results; exit codes are those of `tandem.errors`."""
    options = parse(arguments)
    try:
        until_ns = _until(options.until)
        workloads = [load(options.file, options.set, policy) for policy in options.policy or [None]]
        reports = [report_of(workload, until_ns=until_ns) for workload in workloads]
    except TandemError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {printable(line)}\n")
        sys.exit(exit_code(error))
    sys.stdout.write(json_of(reports) if options.json else text_of(reports))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tandemd.sim",
        description="Plays jobs on a modelled GPU under the daemon's own scheduler.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="the GPU and the jobs, in TOML")
    add(
        "--policy",
        action="append",
        choices=sorted(POLICIES),
        help="policy to use instead of the file's; several are compared",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="set a key of scheduler, class or gpu, instead of what the file says",
    )
    add("--until", metavar="DURATION", help="stop there; by default when all jobs have ended")
    add("--json", action="store_true", help="print all figures as JSON, instead of tables")
    return parser.parse_args(arguments)


def _until(text: str | None) -> int | None:
    until_ns = None if text is None else parse_duration(text, what="--until")
    if until_ns == 0:
        raise UsageError("--until 0 would simulate nothing; give a duration such as 60s")
    return until_ns


if __name__ == "__main__":
    main()

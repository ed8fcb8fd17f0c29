"""Runs one program to its end: `python -m bench.gpu.programs NAME cuda|cpu [ITERATIONS]`.

Marks each iteration (`tandem.step`). Prints the digest on stdout and, on stderr, whether Tandem
managed it. A program that crashes, or receives WHERE_ARE_YOU, writes its stacks to stderr, too.
"""

from __future__ import annotations

import faulthandler
import os
import sys

import tandem
from bench.gpu.programs import ENVIRONMENT, SOURCES, WHERE_ARE_YOU, digest_of, load


def main() -> None:
    """Run the program and print its digest."""
    faulthandler.enable()
    faulthandler.register(WHERE_ARE_YOU)
    name, device, *more = sys.argv[1:]
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    made = load(name)(device)
    for number in range(int(more[0]) if more else SOURCES[name].iterations):
        made.step()
        tandem.step(number)
    print(f"digest {digest_of(made)}")
    print(f"managed: {tandem.is_managed()}", file=sys.stderr)
    made.close()


if __name__ == "__main__":
    main()

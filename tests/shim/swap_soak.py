"""Runs many random lives of processes whose memory is moved; writes the results as JSON.

    python tests/shim/swap_soak.py [--sequences 10000] [--seed 1] [--devices 2] [--result FILE]

It uses that many devices at the same time, each with its part of the sequences and its own seed.
See swap_sequences.py for what a sequence is.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tandem import _paths, softgpu

FAULTS = "oom%0.05,seed=7"  # device memory is refused now and then


def run(folder: Path, sequences: int, seed: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the sequences on a device of their own."""
    env = softgpu.environment(folder=folder, clock="virtual", profile="tiny", faults=FAULTS)
    env |= {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(folder)}
    program = Path(__file__).with_name("swap_sequences.py")
    return subprocess.run(
        [sys.executable, str(program), str(folder), str(sequences), str(seed), *more],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Run them; return 1 if one of them lost a byte, or failed in another way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--result", type=Path)
    wanted = parser.parse_args()
    shares = [
        wanted.sequences // wanted.devices + (index < wanted.sequences % wanted.devices)
        for index in range(wanted.devices)
    ]
    with tempfile.TemporaryDirectory(prefix="tandem-") as top, ThreadPoolExecutor() as pool:
        folders = [Path(top, str(index)) for index in range(wanted.devices)]
        for folder in folders:
            folder.mkdir()
        seeds = range(wanted.seed, wanted.seed + wanted.devices)
        ended = list(pool.map(run, folders, shares, seeds))
    for one in ended:
        sys.stderr.write(one.stderr)
    failed = sum(one.returncode != 0 for one in ended)
    seen: Counter[str] = Counter()
    for one in ended:
        if one.returncode == 0:
            seen.update(json.loads(one.stdout))
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": "software GPU, virtual clock",
        "daemon": "driven by the test",
        "faults": FAULTS,
        "seeds": list(seeds),
        "failed": failed,
        **{name.replace(" ", "_"): count for name, count in sorted(seen.items())},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if wanted.result:
        wanted.result.write_text(text + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

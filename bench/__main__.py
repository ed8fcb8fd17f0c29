"""`python -m bench NAME`: run one measurement; the last line printed is one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

# name -> what it measures
BENCHES = {
    "launch": "what the shim adds to a launch, in nanoseconds",
    "attach": "how long a crowd of processes needs to attach",
    "gate": "from an opened gate to the next launch, and from a busy server to the last one",
    "idle": "what the daemon costs with 100 attached processes that do nothing",
}


def main() -> int:
    """Run it; 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        epilog="\n".join(f"{name}: {what}" for name, what in BENCHES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHES)
    name = parser.parse_args().name
    result = importlib.import_module(f"bench.{name}").run()
    print(json.dumps(result))
    return 0 if all(bar["ok"] for bar in result["bars"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())

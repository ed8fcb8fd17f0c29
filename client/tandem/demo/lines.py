"""What a worker tells the conductor: JSON lines on stdout."""

from __future__ import annotations

import json
import sys


def say(event: str, **fields: object) -> None:
    """Print one line and flush it."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()

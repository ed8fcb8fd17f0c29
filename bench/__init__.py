"""Measurements against the project's budgets: run `python -m bench NAME` in the root folder."""

import sys
from pathlib import Path

# The one place that knows how to compile native code is a folder of scripts, not a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "csrc"))

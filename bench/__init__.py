"""Measurements against the budgets of the project: `python -m bench NAME` in the root folder."""

import sys
from pathlib import Path

# How native code is compiled is known in one place, which is a script and no package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "csrc"))

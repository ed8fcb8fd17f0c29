"""pip without a network, and what an environment needs besides the wheel."""

import shutil
import sys
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "-q")
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")


def copy_click(site: Path) -> None:
    """Copy all that the command needs besides the standard library."""
    import click

    shutil.copytree(Path(click.__file__).parent, site / "click")

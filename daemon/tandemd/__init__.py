"""The Tandem daemon: decides which jobs compute on a shared GPU, and when."""

import sys
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gpu-tandem")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"


def main() -> None:
    """The `tandemd` command; says what to install where the [daemon] extra is missing."""
    try:
        from tandemd.__main__ import main as run
    except ModuleNotFoundError as missing:
        name = missing.name or ""
        if name.partition(".")[0] in ("tandem", "tandemd"):
            raise
        sys.exit(
            f"error: tandemd needs {name}, which is not installed; "
            "install Tandem with its [daemon] extra: pip install '.[daemon]'"
        )
    run()

"""The Tandem daemon: decides which jobs compute on a shared GPU, and when."""

import signal
import sys
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gpu-tandem")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"

SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})


def hold_signals() -> None:
    """Have the signals that the daemon waits for wait until it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def main() -> None:
    """The `tandemd` command; says what to install where the [daemon] extra is missing."""
    hold_signals()  # before all that takes a second to import
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

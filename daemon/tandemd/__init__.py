"""The Tandem daemon: decides which jobs compute on a shared GPU, and when."""

import importlib
import os
import resource
import signal
import sys
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gpu-tandem")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"

LEAST_ADDRESS_SPACE = 1 << 30  # for what is imported, and the stacks of threads
EXIT_MISSING = 4  # that of tandem.errors.StateError
SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})


def hold_signals() -> None:
    """Have the signals that the daemon waits for wait until it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def taken_signal(timeout_s: float) -> signal.Signals | None:
    """The signal of `SIGNALS` that came within the time, or None.

    Where SIGCONT ends the wait after that time, CPython (up to 3.13 at least) returns what it never
    filled in: whatever was not waited for did not come.
    """
    taken = signal.sigtimedwait(SIGNALS, timeout_s)
    if taken is None or taken.si_signo not in SIGNALS:
        return None
    return signal.Signals(taken.si_signo)


def open_closed_streams() -> None:
    """Have nothing else get the numbers of streams that whoever started this had closed."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - until the end


def require_address_space() -> None:
    """End, with a line, where imports would fail for want of it in many ways."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        sys.stderr.write(
            f"error: the limit of address space is {limit >> 10} KiB and tandemd needs "
            f"{LEAST_ADDRESS_SPACE >> 10}; raise it (ulimit -v, or LimitAS= of the unit)\n"
        )
        sys.exit(EXIT_MISSING)


def main() -> None:
    """The `tandemd` command; says what to install where the [daemon] extra is missing."""
    _run("tandemd", "tandemd.__main__")


def main_of_helper() -> None:
    """The `tandemd-helper` command; as `main`."""
    _run("tandemd-helper", "tandemd.helper.__main__")


def _run(command: str, module: str) -> None:
    hold_signals()  # before all that takes a second to import
    open_closed_streams()
    require_address_space()
    try:
        run = importlib.import_module(module).main
    except ModuleNotFoundError as missing:
        name = missing.name or ""
        if name.partition(".")[0] in ("tandem", "tandemd"):
            raise
        sys.stderr.write(
            f"error: {command} needs {name}, which is not installed; "
            "install Tandem with its [daemon] extra: pip install 'gpu-tandem[daemon]'\n"
        )
        sys.exit(EXIT_MISSING)
    run()

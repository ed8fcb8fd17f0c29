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

LEAST_ADDRESS_SPACE = 1 << 30  # for imported modules and thread stacks
EXIT_MISSING = 4  # the exit code of tandem.errors.StateError
SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})


def hold_signals() -> None:
    """Block the signals that the daemon handles until it is ready to wait for them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def taken_signal(timeout_s: float) -> signal.Signals | None:
    """Return the signal of `SIGNALS` that arrived within the timeout, or None.

    If SIGCONT ends the wait after the timeout has passed, CPython (up to 3.13 at least) returns a
    struct that it never filled in, so a number outside `SIGNALS` means that nothing arrived.
    """
    taken = signal.sigtimedwait(SIGNALS, timeout_s)
    if taken is None or taken.si_signo not in SIGNALS:
        return None
    return signal.Signals(taken.si_signo)


def open_closed_streams() -> None:
    """Reopen closed standard streams so that no other file gets their numbers."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - until the end


def require_address_space() -> None:
    """Exit with one line if the address space is so small that imports would fail in many ways."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        sys.stderr.write(
            f"error: the limit of address space is {limit >> 10} KiB and tandemd needs "
            f"{LEAST_ADDRESS_SPACE >> 10}; raise it (ulimit -v, or LimitAS= of the unit)\n"
        )
        sys.exit(EXIT_MISSING)


def main() -> None:
    """Run the `tandemd` command; says what to install where the [daemon] extra is missing."""
    _run("tandemd", "tandemd.__main__")


def main_of_helper() -> None:
    """Run the `tandemd-helper` command, in the same way as `main`."""
    _run("tandemd-helper", "tandemd.helper.__main__")


def _run(command: str, module: str) -> None:
    hold_signals()  # before the imports, which take a second
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

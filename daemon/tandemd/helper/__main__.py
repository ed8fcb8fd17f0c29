"""tandemd-helper: does what needs root for a daemon without it, and exits when not needed.

systemd listens on its socket and starts it for the first question. It exits when it was asked
nothing for a minute. An MPS that it has started keeps it running, and outlives it as long as that
MPS has clients.
"""

from __future__ import annotations

from tandemd import __version__, hold_signals, taken_signal

if __name__ == "__main__":
    hold_signals()  # before the imports, which take a second

import argparse
import os
import pwd
import signal
import socket
import sys
import threading
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import structlog

from tandem._helper import MPS, SOCKET
from tandem._text import printable
from tandem.errors import BugError, StateError, TandemError, UsageError, exit_code
from tandemd.edges.checkpoint_driver import CheckpointDriver
from tandemd.helper import unit
from tandemd.helper.root_mps import RootMps
from tandemd.helper.service import Service
from tandemd.helper.verbs import Verbs
from tandemd.left_sockets import take_away_left
from tandemd.log_lines import set_up_logging

FIRST = 3  # SD_LISTEN_FDS_START
ENDING = (signal.SIGINT, signal.SIGTERM)  # SIGHUP means nothing to it
LOOK_S = 1.0
IDLE_S = 60.0
FINISH_S = 60.0  # for instance for a process that is being saved

EPILOG = """\
examples:
  tandemd-helper --user tandem --socket /run/tandem-helper/helper.sock
  tandemd-helper --print-unit socket > /etc/systemd/system/tandemd-helper.socket
  tandemd-helper --print-unit service > /etc/systemd/system/tandemd-helper.service
"""

log = structlog.get_logger("tandemd-helper")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the helper; exit codes are those of `tandem.errors`."""
    options = parse(arguments)
    if options.print_unit:
        sys.stdout.write(unit.render(options.print_unit, unit.own_program()))
        return
    set_up_logging("info")
    try:
        uid = uid_of(options.user)
        given = given_listener(os.environ)
        listener = given or own_listener(options.socket, uid)
        serve(listener, uid=uid, idle_s=IDLE_S if given else None)
    except TandemError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        sys.exit(exit_code(error))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="tandemd-helper",
        description="Does what needs root, for a tandemd that does not run as root.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--user",
        default="tandem",
        metavar="NAME",
        help="name or uid of the user whose daemon it serves; default tandem",
    )
    add(
        "--socket",
        type=Path,
        metavar="PATH",
        help=f"to listen on where systemd gives none, such as {SOCKET}",
    )
    kinds = tuple(unit.TEMPLATES)
    add("--print-unit", choices=kinds, help="print a systemd unit for this installation")
    add("--version", action="version", version=f"tandemd-helper {__version__}")
    return parser.parse_args(arguments)


def uid_of(user: str) -> int:
    """Return the uid of the daemon to serve.

    Raises:
        UsageError: there is no such user.
    """
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise UsageError(
            f"--user: there is no user '{user}'; name the one that tandemd runs as"
        ) from error


def given_listener(environ: MutableMapping[str, str]) -> socket.socket | None:
    """Return the socket that systemd passed us; None: it passed none. See sd_listen_fds(3).

    Raises:
        UsageError: it is not the one socket of our unit.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for programs that we start
        environ.pop(name, None)
    if count != "1":
        raise UsageError(f"systemd gives {count or 'no'} sockets, and it takes one")
    # A duplicate, which programs that we start do not inherit.
    listener = socket.socket(fileno=os.dup(FIRST))
    os.close(FIRST)
    if listener.family != socket.AF_UNIX or listener.type != socket.SOCK_SEQPACKET:
        raise UsageError("systemd gives another socket than ListenSequentialPacket= of a path")
    return listener


def own_listener(path: Path | None, uid: int) -> socket.socket:
    """Listen at this path, for this user alone.

    Raises:
        UsageError: no path is given, or it is not available.
    """
    if path is None:
        raise UsageError("nobody listens for it: start tandemd-helper.socket, or say --socket PATH")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = os.umask(0o177)
    try:
        take_away_left(path, socket.SOCK_SEQPACKET)
        listener.bind(str(path))
        os.chown(path, uid, -1)
        listener.listen()
    except (OSError, ValueError) as error:
        raise UsageError(f"--socket: cannot listen on '{path}': {error}") from error
    finally:
        os.umask(mask)
    return listener


def serve(listener: socket.socket, *, uid: int, idle_s: float | None) -> None:
    """Answer until a signal arrives, or until idle for `idle_s`.

    Raises:
        BugError: the thread that takes questions has died.
    """
    path = Path(listener.getsockname())
    mps = RootMps(path.parent / MPS, os.environ)
    verbs = Verbs(CheckpointDriver(), mps)
    service = Service(listener, uids=frozenset({0, uid}), do=verbs.do)
    taking = threading.Thread(target=service.run, name="questions", daemon=True)
    taking.start()
    log.info("ready", version=__version__, socket=str(path), uid=uid)
    while taking.is_alive():
        if taken_signal(LOOK_S) in ENDING:
            service.finish(FINISH_S)
            _end(mps)
            log.info("stopped")
            return
        is_needed = mps.look()
        if idle_s is not None and not is_needed and service.close(idle_s=idle_s):
            log.info("stopped: there were no requests for a while")
            return
    raise BugError("the thread that takes requests died; this is a bug in tandem, please report it")


def _end(mps: RootMps) -> None:
    """End MPS; one that has clients is left to the next helper."""
    try:
        mps.end()
    except StateError as error:
        log.info("leaving mps running", reason=str(error))


if __name__ == "__main__":
    main()

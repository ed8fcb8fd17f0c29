"""The daemon's main program: reads the configuration, wires the parts, runs until a signal."""

from __future__ import annotations

from tandemd import (
    SIGNALS,
    hold_signals,
    open_closed_streams,
    require_address_space,
    taken_signal,
)

if __name__ == "__main__":
    hold_signals()  # before the imports, which take a second
    open_closed_streams()
    require_address_space()

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from tandem._text import printable
from tandem.errors import BugError, StateError, TandemError, UsageError, exit_code
from tandemd import __version__, unit
from tandemd.config.config import (
    DEFAULT_FILE,
    Config,
    files_of,
    load,
    too_much_kept_free,
    unknown_gpus,
    unknown_names,
)
from tandemd.config.listing import listing
from tandemd.core.policy import POLICIES
from tandemd.daemon import Daemon
from tandemd.edges.children import keep_capabilities
from tandemd.edges.gpus import find_inventory
from tandemd.edges.host_files import require_directory
from tandemd.edges.notify import notify, watchdog_period_s
from tandemd.log_lines import LOG_LEVELS, set_up_logging
from tandemd.runtime import RUNTIME_DIR_VARIABLE, RuntimeDir, runtime_dir
from tandemd.state_file import machine_name, make_usual_place, state_path

EPILOG = """\
examples:
  tandemd                                    with /etc/tandem/config.toml, if it exists
  tandemd --runtime-dir /tmp/mine --policy fair
  tandemd --config my.toml --check-config    report what is wrong in it, and exit
  tandemd --print-unit > /etc/systemd/system/tandemd.service

signals: TERM and INT release all jobs and stop the daemon; HUP reloads the configuration
"""
CLOCK_VARIABLES = ("TANDEM_CLOCK", "TANDEM_SOFTGPU_CLOCK")
LOOK_S = 0.5  # how often the main thread checks on the loop


class LostDirectoryError(StateError):
    """The runtime directory is gone, or belongs to another daemon by now."""


log = structlog.get_logger("tandemd")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon; exit codes are those of `tandem.errors`."""
    options = parse(arguments)
    if options.print_unit:
        sys.stdout.write(unit.render(unit.own_program()))
        return
    try:
        set_up_logging("warning" if options.check_config else options.log_level)
        if options.check_config or options.print_config:  # these do not wait for signals
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if options.check_config:
            check(load(options.config))
            files = ", ".join(map(str, files_of(options.config)))
            read = files or f"{DEFAULT_FILE} does not exist, so the built-in defaults apply"
            sys.stdout.write(f"the configuration is valid: {read}\n")
            return
        if options.print_config:
            sys.stdout.write(f"{listing(options.config)}\n")
            return
        serve(options)
    except TandemError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {printable(line)}\n")
        if isinstance(error, LostDirectoryError):
            sys.stderr.flush()
            # A normal exit would let gRPC remove whatever is at its socket's path.
            os._exit(exit_code(error))
        sys.exit(exit_code(error))


def check(config: Config) -> None:
    """Check the configuration against this machine: its GPUs, if it has any, and its directories.

    Raises:
        UsageError: a section names a GPU or a directory that does not exist, or leaves jobs no
            memory on a GPU.
    """
    gpus = find_inventory().gpus()
    wrong = [unknown_gpus(config, gpus), too_much_kept_free(config, gpus)]
    try:
        if config.memory.directory is not None:
            require_directory(config.memory.directory)
    except UsageError as error:
        wrong.append(str(error))
    if any(wrong):
        raise UsageError("\n".join(filter(None, wrong)))
    if nobody := unknown_names(config):  # only a warning: those users may yet be created
        sys.stderr.write(f"warning: {printable(nobody)}\n")


def _folder(said: str) -> Path:
    if not said:  # from an unset shell variable; as a path it would be the current directory
        raise argparse.ArgumentTypeError("it is empty; name a directory, or omit the option")
    return Path(said)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="tandemd",
        description="Decides which jobs compute on a shared GPU, and when.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    is_virtual = any(os.environ.get(name) == "virtual" for name in CLOCK_VARIABLES)
    add("--config", type=Path, metavar="FILE", help="default /etc/tandem/config.toml, if present")
    add("--runtime-dir", type=_folder, metavar="DIR", help="directory of its sockets")
    add("--policy", choices=sorted(POLICIES), help="policy to use instead of the configured one")
    add(
        "--window-segments",
        type=int,
        metavar="N",
        help="how many segments a best-effort process may have open; 0 = no limit",
    )
    add(
        "--clock",
        choices=("monotonic", "softgpu"),
        default="softgpu" if is_virtual else "monotonic",
        help="softgpu: the clock of the software GPU, virtual or real; default monotonic, or "
        f"softgpu if {' or '.join(CLOCK_VARIABLES)} is virtual",
    )
    add("--log-level", choices=LOG_LEVELS, default="info")
    add("--foreground", action="store_true", help="accepted for scripts; tandemd never forks")
    add("--check-config", action="store_true", help="check the configuration and exit")
    add(
        "--print-config", action="store_true", help="print the whole configuration as JSON and exit"
    )
    add("--print-unit", action="store_true", help="print a systemd unit for this installation")
    add("--version", action="version", version=f"tandemd {__version__}")
    return parser.parse_args(arguments)


def serve(options: argparse.Namespace) -> None:
    """Run until a signal arrives or a vital thread dies.

    Raises:
        UsageError: the configuration or the runtime directory is wrong, or a socket is not
            available.
        LostDirectoryError: the runtime directory was removed, or belongs to another daemon by now.
        StateError: another daemon holds the directory, or a library is missing.
        BugError: the loop died, or one of the threads that accept newcomers.
    """
    # Before any thread starts: threads inherit the signal mask, and only the main thread takes
    # signals, by waiting for them.
    keep_capabilities()
    hold_signals()
    config = configured(options)
    path = options.runtime_dir or runtime_dir(os.environ, uid=os.geteuid())
    directory = RuntimeDir(path)
    is_named = options.runtime_dir is not None or bool(os.environ.get(RUNTIME_DIR_VARIABLE))
    state = state_path(
        config.daemon.state,
        os.environ,
        uid=os.geteuid(),
        own_runtime_dir=path.absolute() if is_named else None,
        machine=machine_name(),
    )
    make_usual_place(config.daemon.state, state)
    daemon = Daemon(
        config=config, directory=directory, soft_clock=options.clock == "softgpu", state=state
    )
    try:
        daemon.start()
        # A garbage collection over everything imported takes 15 ms and more, during which nothing
        # is scheduled. Do it now, and exempt these objects from later ones.
        gc.collect()
        gc.freeze()
        policy = config.scheduler.policy
        log.info("ready", runtime_dir=str(path), policy=policy, pid=os.getpid())
        notify(f"READY=1\nMAINPID={os.getpid()}")
        _mind(daemon, directory, options)
    finally:  # also after a failed start: native threads still running would abort the exit
        notify("STOPPING=1")
        daemon.stop()
    _require(directory)  # also if a signal came first: what is left running ends with this process
    if daemon.failure is not None:
        raise BugError(
            f"a thread that the daemon cannot run without died: {daemon.failure!r}; "
            "this is a bug in tandem, please report it"
        )
    log.info("stopped")


def _require(directory: RuntimeDir) -> None:
    if gone := directory.why_lost():
        raise LostDirectoryError(
            f"runtime directory '{directory.path}': {gone} was removed while jobs were served "
            "there; they go on unshared until a daemon is started anew"
        )


def configured(options: argparse.Namespace) -> Config:
    """Return the configuration with the command line's overrides applied.

    Raises:
        UsageError: the file is wrong, or an option is out of range.
    """
    config = load(options.config)
    wanted = {"policy": options.policy, "window_segments": options.window_segments}
    return config.overridden({key: value for key, value in wanted.items() if value is not None})


def _mind(daemon: Daemon, directory: RuntimeDir, options: argparse.Namespace) -> None:
    """Return when the daemon should stop.

    Raises:
        LostDirectoryError: clients cannot reach the daemon any more.
    """
    period_s = watchdog_period_s()
    while daemon.is_alive():
        _require(directory)
        number = taken_signal(min(LOOK_S, period_s or LOOK_S))
        if number is None:
            if period_s is not None and daemon.is_fresh():
                notify("WATCHDOG=1")
        elif number == signal.SIGHUP:
            _reload(daemon, options)
        else:
            log.info("stopping", signal=number.name)
            return


def _reload(daemon: Daemon, options: argparse.Namespace) -> None:
    try:
        config = configured(options)
        daemon.reconfigure(config)
    except TandemError as error:
        log.warning("the configuration is invalid, continuing with the old one", reason=str(error))
        daemon.note_failed_reload()
    except Exception:  # no reason to exit: all jobs would lose their turns
        log.exception("cannot reload the configuration, continuing with the old one")
        daemon.note_failed_reload()


if __name__ == "__main__":
    main()

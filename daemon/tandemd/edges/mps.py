"""The MPS control daemon: a running one is used; otherwise one is started, watched and ended.

With its old interface, the control daemon starts a server for the first client, and another one
after a crash, by itself; servers then need no care, except that jobs are told. With the new
interface, where it exists, it is started from a file that names one server, with our own uid, and
this module has another one created after a crash. Root's control daemon has the old interface: it
serves users in turns, whereas a server of the new one belongs to one user, or to all users at once.
A control daemon that we started is left alone while it has clients, for they would die with it. The
next daemon finds it in the same place, and knows by the pid beside the pipe that it may end it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from tandem import _mps
from tandem._mps import PIPES, Control, Server
from tandemd.edges.mps_helped import HelpedMps
from tandemd.edges.mps_idle import end_servers, idle_servers
from tandemd.edges.mps_log import USUAL_LOGS
from tandemd.edges.mps_own import LOG_FOLDER, LOGS, SAID, OwnMps
from tandemd.edges.mps_servers import Servers

SERVER = "tandem"  # of the new interface
MOST_SAID_BYTES = 1 << 20  # the rest is cut off, because the file may be in memory
LOOK_S = 2.0
EARLY_S = 0.05  # while a newcomer is about to connect, or waits for another user's server to end
EARLY_LOOKS = 60
LONGEST_PAUSE_S = 60.0  # between two queries, or two attempts to start it
ANSWER_S = 5.0
START_S = 5.0
POLL_S = 0.02

log = structlog.get_logger(__name__)


class MpsControl:
    """Finds or starts MPS by `open`; `run` then watches it in a thread of its own until `stop`."""

    def __init__(
        self,
        *,
        own: Path,
        environment: Mapping[str, str],
        gpus: Sequence[str] | None,
        tell: Callable[[str, float], None],
        uid: int,
        look_s: float = LOOK_S,
    ) -> None:
        """`own` is the directory for one of ours, unless the environment names the place.

        `gpus` are the UUIDs of the GPUs to serve; empty: all. None: only a running MPS is used, and
        none is started. `uid` is the daemon's.

        `tell` gets what jobs should know, and for how many seconds it may have been so already, on
        the thread of `run`.
        """
        self.directory: Path | None = None  # of its pipe; None: there is none
        self.place: Path | None = None  # the same, or its last place once it has gone
        self._own = OwnMps(own, environment)
        # The helper's MPS is preferred over one of our own; None: not needed. Set before `open`.
        self.helped: HelpedMps | None = None
        self._environment = unshimmed(environment)
        self._gpus = gpus or ()
        self._tell = tell
        # Gets the pids of all clients whenever all are known; on the same thread.
        self.name_clients: Callable[[frozenset[int]], None] = lambda _: None
        self._uid = uid
        self._starts = gpus is not None
        self._well_s = 0.0  # the last time that a look found all well
        self._pipes: Path | None = None  # of its clients
        self._look_s = look_s
        self._is_silent = False  # it runs but does not answer
        self._why_no_server = ""  # as it was logged
        self._looking = threading.Lock()  # held while looking, starting or ending
        self._servers = Servers(())
        self._ask_s = 0.0  # when to query it again, if nothing happens before
        self._pause_s = EARLY_S  # until then, counted from the last query
        self._stopping = threading.Event()
        self._came = threading.Event()  # a newcomer, or the request to stop

    @property
    def is_own(self) -> bool:
        """Tell whether this daemon, or one before it, started it."""
        return self.directory == self._own.directory and self._own.pid is not None

    @property
    def is_helped(self) -> bool:
        """Tell whether the helper started it, for this daemon or one before."""
        return self.helped is not None and self.directory == self.helped.place is not None

    def open(self) -> bool:
        """Find MPS where programs look by themselves, else where ours would be, else start one.

        Blocks for `ANSWER_S` if one is silent or about to end, and for `START_S`, or twice that
        where it may be started from a file, or as long as the helper takes. Returns False if there
        is none; the log says why.
        """
        self._well_s = time.monotonic()
        is_there = self._open()
        self.place = self.directory or self.place
        self._servers = Servers(self._log_files())
        if is_there and not self.is_own and not self._servers.are_logged:
            log.info(
                "the log of mps cannot be read, so nothing says what keeps its servers from "
                "starting, nor who of several users had one that crashed",
                files=", ".join(map(str, self._log_files())),
            )
        self._ask_soon()
        return is_there

    def _log_files(self) -> list[Path]:
        if self.is_own:
            return [self._own.logs / SAID]
        if self.is_helped and self.directory is not None:
            return [self.directory / LOG_FOLDER / SAID]
        logs = Path(self._environment.get(LOGS) or USUAL_LOGS)
        return [logs / "control.log", logs / "server.log"]

    def _open(self) -> bool:
        usual = _mps.pipes_of(self._environment)
        own = self._own.directory
        self.directory = None
        places = dict.fromkeys((usual, own) if self._starts else (usual,))
        for place in places:
            control = self._at(place)
            if (servers := control.servers()) is not None:
                self._pipes = control.pipes_for(self._uid, servers)
                self.directory = place
                self._claim()
                log.info("using a running control daemon of mps", pipes=str(place))
                return True
            if (pid := self._pid_at(place)) is not None:
                # Somebody may have a session with it, or it waits for its last clients to quit.
                log.warning("mps runs but does not answer, continuing without it for now", pid=pid)
                return False
        if self._starts and not self._stopping.is_set():
            self.directory = self._start_helped() or (own if self._start() else None)
        return self.directory is not None

    def _start_helped(self) -> Path | None:
        place = None if self.helped is None else self.helped.start(self._gpus)
        if place is None:
            return None
        control = self._at(place)
        if (servers := control.servers()) is None:
            log.warning("mps of the helper does not answer, continuing without it for now")
            return None
        self._pipes = control.pipes_for(self._uid, servers)
        return place

    def _claim(self) -> None:
        """Adopt an own control daemon that came up only after its start had timed out."""
        if self.directory == self._own.directory:
            try:
                self._own.claim()
            except OSError as error:
                log.warning("cannot record that mps is ours", reason=str(error))

    def run(self) -> None:
        """Watch until `stop` is called."""
        pause_s, early_left = self._look_s, 0
        while not self._stopping.is_set():
            # Newcomers are ignored: they are no reason to try starting MPS.
            if self.directory is None:
                early_left = 0
                self._stopping.wait(pause_s)
            elif early_left or self._servers.are_contended:
                self._stopping.wait(min(EARLY_S, pause_s))
            else:
                self._came.wait(pause_s)
            if self._stopping.is_set():
                return
            if self.directory is not None and self._came.is_set():
                self._came.clear()
                early_left = EARLY_LOOKS
                self._ask_soon()
            early_left = max(0, early_left - 1)
            with self._looking:
                is_there = not self._stopping.is_set() and (self._is_quiet() or self._look())
            pause_s = self._look_s if is_there else min(2 * pause_s, LONGEST_PAUSE_S)

    def _is_quiet(self) -> bool:
        """Tell whether nothing has happened, as far as can be seen without querying.

        Each query leaves several lines in the log of MPS, which may be an operator's.
        """
        now_s, has_news = time.monotonic(), self._servers.look()
        if self.directory is None or has_news or now_s >= self._ask_s:
            return False
        if self._pid_at(self.directory) is None:
            return False
        self._well_s = now_s
        return True

    def _ask_soon(self) -> None:
        self._ask_s, self._pause_s = 0.0, EARLY_S

    def _ask_later(self, *, has_news: bool) -> None:
        """Schedule the next query, ever later while the answers stay the same."""
        if has_news:
            self._ask_soon()
        self._ask_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def newcomer(self) -> None:
        """Note that a process is about to become a client, so look soon and often. Any thread."""
        self._came.set()

    def variables(self) -> dict[str, str]:
        """Return what a program needs in its environment to find MPS; any thread."""
        return {PIPES: str(self._pipes)} if self.directory and self._pipes else {}

    def idle_servers(self) -> frozenset[int]:
        """Return pids of idle servers of our MPS, or the helper's, that can end; any thread."""
        directory = self.directory
        if directory is None or not (self.is_own or self.is_helped):
            return frozenset()
        return idle_servers(self._at(directory))

    def end_servers(self, pids: frozenset[int]) -> None:
        """End these servers and wait for that; the next client gets a new one. Any thread."""
        directory = self.directory
        if directory is None or not pids:
            return
        if self.is_helped and self.helped is not None:
            self.helped.trim()
        else:
            end_servers(self._at(directory), pids)

    def stop(self) -> None:
        """End `run`, and the MPS that we started, unless it has clients or does not answer.

        If `run` is just starting MPS, it abandons that first.
        """
        self._stopping.set()
        self._came.set()
        with self._looking:
            own = self._own.directory
            why = self._own.end(self._at(own))
            if self.is_helped and self.helped is not None:
                why, own = self.helped.end(), self.helped.place or own
            if why:
                log.info("leaving mps running", reason=why, pipes=str(own))

    def _look(self) -> bool:
        """Query MPS and compare with what was known; returns whether there is one now."""
        control, now_s = self._at(self.directory or self._own.directory), time.monotonic()
        servers = control.servers() if self.directory else None
        if servers is None:
            return self._is_slow() or (not self._stopping.is_set() and self._replace())
        self._is_silent = False
        named = {server.pid: control.clients(server) for server in servers}
        if control.version == 3 and self.is_own and not servers:
            control.create(SERVER, uid=self._uid, gpus=",".join(self._gpus))
        self._servers.look()
        if self.is_own:  # its contents up to now have been read
            self._own.cut_said(MOST_SAID_BYTES)
        self._tell_of_none(servers)
        has_news = self._servers.take(servers, named)
        crashed = self._servers.crashed()
        if not crashed and None not in named.values():
            self.name_clients(frozenset(pid for pids in named.values() for pid in pids or ()))
        for server in crashed:
            self._tell(
                f"the mps server {server} has ended: jobs that used it get cuda's errors; "
                "those that start now get another server",
                time.monotonic() - self._well_s,
            )
        self._well_s = now_s
        self._ask_later(has_news=has_news or bool(crashed))
        return True

    def _tell_of_none(self, servers: Sequence[Server]) -> None:
        """Report servers that were started but never came up, so their clients were refused."""
        why, self._servers.why_not = self._servers.why_not, ""
        if why:
            if why != self._why_no_server:
                log.warning("mps cannot start a server", reason=why)
            self._tell(
                f"mps cannot start a server ({why}): jobs that come to it get cuda's error 805",
                time.monotonic() - self._well_s,
            )
        if why or servers:
            self._why_no_server = why

    def _is_slow(self) -> bool:
        """Tell whether it runs without answering: its clients go on, and it blocks a new start."""
        place = self.directory
        pid = self._pid_at(place) if place else None
        if pid is None:
            return False
        if not self._is_silent:
            log.warning("the control daemon of mps runs but does not answer", pid=pid)
        self._is_silent = True
        return True

    def _pid_at(self, place: Path) -> int | None:
        """Return the pid of the control daemon whose pipe is there, answering or not."""
        if not _mps.has_pipe(place):
            return None
        own = self._own.pid if place == self._own.directory else None
        return own or _mps.control_pid(place)

    def _replace(self) -> bool:
        was_there, self.directory = self.directory is not None, None
        if was_there:  # before slow steps: the jobs end by it
            log.warning("the control daemon of mps has ended")
            self._tell(
                "the control daemon of mps has ended: jobs that used it get cuda's errors",
                time.monotonic() - self._well_s,
            )
        self._own.forget()
        is_there = self.open()
        if is_there:
            self._tell("mps runs again: jobs that start now use it", 0.0)
        return is_there

    def _start(self) -> bool:
        try:
            if self._uid != 0 and _mps.takes_files(self._environment, timeout_s=ANSWER_S):
                if self._begin("-f", "-p", "3", "-a", str(self._file())):
                    return True
                self._own.give_up()
                if self._stopping.is_set():
                    return False
                log.warning("mps does not start from a configuration file, trying without one")
            return self._begin("-f")
        except OSError as error:
            log.warning("mps cannot be started, continuing without it", reason=str(error))
            self._own.give_up()
            return False

    def _file(self) -> Path:
        """Write a configuration with one server for our own jobs ("MPS v3 Configuration File")."""
        devices = [f'allowed_devices = "{",".join(self._gpus)}"'] if self._gpus else []
        lines = ['schema_version = "1.0"', f"[servers.{SERVER}]", f"uid = {self._uid}", *devices]
        return self._own.write_file("\n".join([*lines, ""]))

    def _begin(self, *words: str) -> bool:
        self._own.start(words, self._environment | self._devices())
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s and not self._own.why_not():
            if self._is_up():
                self._own.claim()
                log.info("started mps", pid=self._own.pid, pipes=str(self._own.directory))
                return True
            if self._stopping.wait(POLL_S):
                self._own.give_up()
                return False
        log.warning(
            "mps does not start, continuing without it",
            reason=self._own.why_not() or "does not answer",
            logs=str(self._own.logs),
        )
        if not _mps.has_pipe(self._own.directory):
            self._own.give_up()  # otherwise each attempt would leave one running
        return False

    def _is_up(self) -> bool:
        """Tell whether it is up, with its server if started from a file.

        A client that finds no server runs without MPS, unnoticed.
        """
        control = self._at(self._own.directory)
        servers = control.servers()
        self._pipes = None if servers is None else control.pipes_for(self._uid, servers)
        return self._pipes is not None

    def _at(self, place: Path) -> Control:
        return Control(place, environment=self._environment, timeout_s=ANSWER_S)

    def _devices(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus)} if self._gpus else {}


class LeftMps:
    """An MPS of ours or the helper's that an earlier daemon left to its clients, not wanted now.

    `run`, in a thread of its own, ends it once it has no clients; until `stop`.
    """

    def __init__(
        self,
        own: Path,
        environment: Mapping[str, str],
        *,
        helped: HelpedMps | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        """`own` and `helped` are as for `MpsControl`."""
        self._own = OwnMps(own, environment)
        self._helped = helped
        around = unshimmed(environment)
        self._control = Control(self._own.directory, environment=around, timeout_s=ANSWER_S)
        self._look_s = look_s
        self._stopping = threading.Event()

    @property
    def is_there(self) -> bool:
        """Tell whether it runs."""
        return self._own.pid is not None or (self._helped is not None and self._helped.is_there)

    def run(self) -> None:
        """Retry until it has ended, or until `stop`."""
        while self._own.end(self._control) or (self._helped is not None and self._helped.end()):
            if self._stopping.wait(self._look_s):
                return
        log.info("ended mps of an earlier daemon, because it has no clients any more")

    def stop(self) -> None:
        """End `run`: an MPS that has clients is again left to the next daemon."""
        self._stopping.set()


def unshimmed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for programs that must not become jobs."""
    return {name: value for name, value in environment.items() if name != "LD_PRELOAD"}

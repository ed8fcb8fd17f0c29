"""The control daemon of MPS: one that runs is used; else one is started, watched, and ended again.

By its old interface it starts a server for the first client, and another one when that has crashed,
by itself; so there is nothing to do about servers but to tell the jobs. By the new one, where it
has it, it is started from a file that names one server, of our own uid, and we have another made
when that has crashed. Root's has the old one: it serves users in turns, where a server of the new
one is one user's, or all users' at once. One that we started is left alone while it has clients:
they would die with it. The next daemon finds it where this one has put it, and knows by the pid
beside the pipe that it need not leave it running when it ends.
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
MOST_SAID_BYTES = 1 << 20  # more is cut off, for where it is may be memory
LOOK_S = 2.0
EARLY_S = 0.05  # while somebody is new, or waits for another user's server to end
EARLY_LOOKS = 60
LONGEST_PAUSE_S = 60.0  # between two questions, or two attempts to start what does not start
ANSWER_S = 5.0
START_S = 5.0
POLL_S = 0.02

log = structlog.get_logger(__name__)


class MpsControl:
    """Found, or started, by `open`; then `run` watches it in a thread of its own until `stop`."""

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
        """`own`: a directory for one of ours, unless the environment says where it is to be.

        `gpus`: UUIDs of those it is for; empty: all. None: one that runs is used, and none started.

        `uid`: whose daemon this is.

        `tell` hears what jobs should know, and for how many seconds it may have been so already,
        in the thread of `run`.
        """
        self.directory: Path | None = None  # of its pipe; None: there is none
        self.place: Path | None = None  # the same, or where that was when there was one
        self._own = OwnMps(own, environment)
        # One of the helper's goes before one of our own; None: there is no need. Set before `open`.
        self.helped: HelpedMps | None = None
        self._environment = unshimmed(environment)
        self._gpus = gpus or ()
        self._tell = tell
        # Hears the pids of all clients, whenever all are known, in that thread, too.
        self.name_clients: Callable[[frozenset[int]], None] = lambda _: None
        self._uid = uid
        self._starts = gpus is not None
        self._well_s = 0.0  # when it was last looked at and all was well
        self._pipes: Path | None = None  # of its clients
        self._look_s = look_s
        self._is_silent = False  # it runs, and does not answer
        self._why_no_server = ""  # as it was logged
        self._looking = threading.Lock()  # or starting one, or ending it
        self._servers = Servers(())
        self._ask_s = 0.0  # when it is to be asked again, if nothing happens before
        self._pause_s = EARLY_S  # until then, from the last question on
        self._stopping = threading.Event()
        self._came = threading.Event()  # somebody, or it is to stop

    @property
    def is_own(self) -> bool:
        """This daemon, or one before it, started it."""
        return self.directory == self._own.directory and self._own.pid is not None

    @property
    def is_helped(self) -> bool:
        """The helper started it, for this daemon or one before."""
        return self.helped is not None and self.directory == self.helped.place is not None

    def open(self) -> bool:
        """Have one: where programs look by themselves, else where ours would be, else a new one.

        Blocks for `ANSWER_S` where somebody is silent or about to end, and for `START_S`, or twice
        that where it may be started from a file, or as long as the helper takes.
        False: there is none, and the log says why.
        """
        self._well_s = time.monotonic()
        is_there = self._open()
        self.place = self.directory or self.place
        self._servers = Servers(self._log_files())
        if is_there and not self.is_own and not self._servers.are_logged:
            log.info(
                "the log of mps cannot be read: what keeps its servers from starting is not told, "
                "nor who of several users had one that crashed",
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
                log.info("using a control daemon of mps that runs already", pipes=str(place))
                return True
            if (pid := self._pid_at(place)) is not None:
                # Somebody has a session with it, say, or it waits for its last clients to quit.
                log.warning("mps runs and does not answer, continuing without it for now", pid=pid)
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
        """What was too slow when it was started is ours all the same."""
        if self.directory == self._own.directory:
            try:
                self._own.claim()
            except OSError as error:
                log.warning("it cannot be noted that mps is ours", reason=str(error))

    def run(self) -> None:
        """Watch until `stop`."""
        pause_s, early_left = self._look_s, 0
        while not self._stopping.is_set():
            if self.directory is None:  # whoever comes: an attempt to start it is none of theirs
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
        """Whether nothing has happened that can be seen without asking.

        Each question is several lines of its log, which may be an operator's.
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
        """Ever more rarely while the answers are the same."""
        if has_news:
            self._ask_soon()
        self._ask_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def newcomer(self) -> None:
        """A process is about to become a client: look soon, and more often. Any thread."""
        self._came.set()

    def variables(self) -> dict[str, str]:
        """What a program has to have in its environment to find it; any thread."""
        return {PIPES: str(self._pipes)} if self.directory and self._pipes else {}

    def idle_servers(self) -> frozenset[int]:
        """Pids of ours, or the helper's, that nobody uses and that can be ended; any thread."""
        directory = self.directory
        if directory is None or not (self.is_own or self.is_helped):
            return frozenset()
        return idle_servers(self._at(directory))

    def end_servers(self, pids: frozenset[int]) -> None:
        """Have these end, and wait for it; the next client gets another. Any thread."""
        directory = self.directory
        if directory is None or not pids:
            return
        if self.is_helped and self.helped is not None:
            self.helped.trim()
        else:
            end_servers(self._at(directory), pids)

    def stop(self) -> None:
        """End `run`, and what we started, unless somebody uses it, or it does not answer.

        What `run` is just starting, it gives up first.
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
        """Ask, and compare with what was known; whether there is a control daemon now."""
        control, now_s = self._at(self.directory or self._own.directory), time.monotonic()
        servers = control.servers() if self.directory else None
        if servers is None:
            return self._is_slow() or (not self._stopping.is_set() and self._replace())
        self._is_silent = False
        named = {server.pid: control.clients(server) for server in servers}
        if control.version == 3 and self.is_own and not servers:
            control.create(SERVER, uid=self._uid, gpus=",".join(self._gpus))
        self._servers.look()
        if self.is_own:  # what is in it by now was read
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
        """Servers were started, and none came up: whoever came was refused."""
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
        """It runs, and has only not answered: its clients go on, and no other can be started."""
        place = self.directory
        pid = self._pid_at(place) if place else None
        if pid is None:
            return False
        if not self._is_silent:
            log.warning("the control daemon of mps runs and does not answer", pid=pid)
        self._is_silent = True
        return True

    def _pid_at(self, place: Path) -> int | None:
        """Of the control daemon that has its pipe there, whether it answers or not."""
        if not _mps.has_pipe(place):
            return None
        own = self._own.pid if place == self._own.directory else None
        return own or _mps.control_pid(place)

    def _replace(self) -> bool:
        was_there, self.directory = self.directory is not None, None
        if was_there:  # before anything that takes long: they end by it
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
                log.warning("mps does not start from a file, trying it without")
            return self._begin("-f")
        except OSError as error:
            log.warning("mps cannot be started, continuing without it", reason=str(error))
            self._own.give_up()
            return False

    def _file(self) -> Path:
        """One server for our own jobs; "MPS v3 Configuration File" has the keys."""
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
            self._own.give_up()  # else the next attempt would leave it running, and so on
        return False

    def _is_up(self) -> bool:
        """With its server, by a file: a client that finds none runs without MPS, unnoticed."""
        control = self._at(self._own.directory)
        servers = control.servers()
        self._pipes = None if servers is None else control.pipes_for(self._uid, servers)
        return self._pipes is not None

    def _at(self, place: Path) -> Control:
        return Control(place, environment=self._environment, timeout_s=ANSWER_S)

    def _devices(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus)} if self._gpus else {}


class LeftMps:
    """One of ours, or the helper's, that a daemon before left for its clients: none is wanted now.

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
        """`own`, `helped`: as of `MpsControl`."""
        self._own = OwnMps(own, environment)
        self._helped = helped
        around = unshimmed(environment)
        self._control = Control(self._own.directory, environment=around, timeout_s=ANSWER_S)
        self._look_s = look_s
        self._stopping = threading.Event()

    @property
    def is_there(self) -> bool:
        """It runs."""
        return self._own.pid is not None or (self._helped is not None and self._helped.is_there)

    def run(self) -> None:
        """Look again and again."""
        while self._own.end(self._control) or (self._helped is not None and self._helped.end()):
            if self._stopping.wait(self._look_s):
                return
        log.info("ended mps of a daemon before, as it has no clients any more")

    def stop(self) -> None:
        """End `run`: what has clients is left to the next daemon again."""
        self._stopping.set()


def unshimmed(environment: Mapping[str, str]) -> dict[str, str]:
    """Of programs that are not to be jobs."""
    return {name: value for name, value in environment.items() if name != "LD_PRELOAD"}

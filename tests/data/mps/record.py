"""What a control daemon of MPS says: `python tests/data/mps/record.py VERSION PROGRAM`.

Writes VERSION.json beside this file, of NVIDIA's program of that version of the driver, on a
machine with a GPU or without: no server comes up. In place of NVIDIA's server there is a script,
which waits to be killed or ends at once, so that what its end looks like is seen as well. The
software GPU's program, which has servers of its own, is held to what is recorded here.

Each scene has a daemon of its own. Pids, the clock and directories are left out. One command is
asked after the other: while one is being answered, NVIDIA's daemon refuses all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem._mps import control_pid, is_running

HERE = Path(__file__).absolute().parent
PATIENCE_S = 20
NOBODY = 65534
CONTROL, SERVER = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"
STAYS, ENDS = "exec sleep 600", "exit 1"
# Of a user; where there is no server yet it waits in cuInit.
CLIENT = """
import ctypes, os, sys
driver = ctypes.CDLL("libcuda.so.1")
os.setuid(int(sys.argv[1]))
driver.cuInit(0)
sys.stdin.read()
"""
# Where several are in one line they are asked in one session.
COMMANDS = """
get_server_list
get_server_list and more
get_server_status 1
get_server_status
get_client_list 1
get_client_list x
get_client_list
get_device_client_list
get_device_client_list 1
ps
ps -p 1
shutdown_server 1
shutdown_server 1 -f
shutdown_server
start_server
start_server 1000
start_server -uid x
terminate_client 1 1
get_active_thread_percentage 1
set_active_thread_percentage 1 50
get_device_pinned_mem_limit 1 0
set_device_pinned_mem_limit 1 0 1G
get_default_active_thread_percentage
set_default_active_thread_percentage 50
get_default_active_thread_percentage
set_default_active_thread_percentage 33.333
set_default_active_thread_percentage 1e1
set_default_active_thread_percentage 50x
set_default_active_thread_percentage 0
set_default_active_thread_percentage -1
set_default_active_thread_percentage 101
set_default_active_thread_percentage x
set_default_active_thread_percentage
set_default_active_thread_percentage 100
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 4G
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 512M
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 1536M
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 0G
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 12
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 x
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 99 1G
set_default_device_pinned_mem_limit -1 1G
get_default_device_pinned_mem_limit 1
get_default_device_pinned_mem_limit 99
get_default_client_priority
set_default_client_priority 1
get_default_client_priority
set_default_client_priority 2
get_default_client_priority
set_default_client_priority x
get_default_client_priority
help
GET_SERVER_LIST

get_default_active_thread_percentage; get_server_list; get_client_list 7; \
get_default_client_priority
"""
OF_OTHERS = """
get_server_list
get_default_active_thread_percentage
set_default_active_thread_percentage 20
set_default_device_pinned_mem_limit 0 1G
set_default_client_priority 1
shutdown_server 1
quit
get_default_active_thread_percentage
"""
VARIABLES = (
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", "get_default_active_thread_percentage"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "101", "get_default_active_thread_percentage"),
    ("CUDA_MPS_CLIENT_PRIORITY", "1", "get_default_client_priority"),
    ("CUDA_MPS_CLIENT_PRIORITY", "2", "get_default_client_priority"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G", "get_default_device_pinned_mem_limit 0"),
)
# A pipe directory of so many characters.
LENGTHS = (87, 88)
SESSIONS = 16  # lines of the log that show how it tells of these
Said = dict[str, Any]


class Stage:
    """A folder, and a control daemon in it."""

    def __init__(self, program: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.program = program
        self._server = folder / "bin" / SERVER
        self._server.parent.mkdir()
        self._server.parent.chmod(0o755)
        path = f"{self._server.parent}:{environment['PATH']}"
        self.environment = {**environment, "PATH": path}
        self.environment |= {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        }

    def serve_by(self, script: str) -> None:
        """What there is in place of NVIDIA's server."""
        self._server.write_text(f"#!/bin/sh\n{script}\n")
        self._server.chmod(0o755)

    def run(
        self, *words: str, told: str = "", user: int | None = None, **variables: str
    ) -> list[Any]:
        """Its code, and what it writes to stdout and stderr."""
        done = subprocess.run(
            [str(self.program), *words],
            env=self.environment | variables,
            input=told,
            capture_output=True,
            text=True,
            user=user,
            timeout=PATIENCE_S,
            check=False,
        )
        said = (done.stdout, done.stderr)
        return [done.returncode, *(one.replace(str(self.folder), "DIR") for one in said)]

    def ask(self, line: str, user: int | None = None) -> list[Any]:
        """One session, and wait until the daemon knows of its end."""
        commands, before = line.split("; "), self.log().count("UI closed")
        said = self.run(told="".join(f"{one}\n" for one in commands), user=user)
        if "quit" not in commands or user is not None:
            self.wait_for(lambda: self.log().count("UI closed") > before)
        return said

    def start(self, *words: str, **variables: str) -> int:
        """In the foreground, so that its end is seen; its pid."""
        self.said = self.folder / "said"
        with self.said.open("w") as said:
            self.daemon = subprocess.Popen(
                [str(self.program), *(words or ("-f",))],
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self.wait_for(lambda: "set env" in self.log() and self.answers())
        self.wait_for(lambda: self.log().count("UI closed") == self.log().count("NEW UI"))
        return self.daemon.pid

    def answers(self) -> bool:
        return self.run(told="get_default_client_priority\n")[1] in ("0\n", "1\n")

    def client(self, user: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", CLIENT, str(user)]
        return subprocess.Popen(words, env=self.environment, stdin=subprocess.PIPE)

    def log(self) -> str:
        return self.said.read_text()

    def log_lines(self) -> list[str]:
        """Without what differs from run to run."""
        text = self.log().replace(str(self.folder), "DIR")
        text = re.sub(r"\[[-\d]+ [:.\d]+ (\w+) +\d+\]", r"[\1]", text)
        text = re.sub(r"\b([Ss]erver|UI|user) \d+\b", r"\1 N", text)
        return text.splitlines()

    def files(self) -> dict[str, str]:
        """Names in the pipe directory, with what they are."""
        return {path.name: kind_of(path) for path in sorted((self.folder / "pipe").iterdir())}

    def wait_for(self, holds: Any) -> None:
        pause = threading.Event()
        for _ in range(PATIENCE_S * 100):
            if holds():
                return
            pause.wait(0.01)
        raise TimeoutError(self.log())

    def server(self) -> int:
        """The one that was started, once it is there."""
        self.wait_for(lambda: self.run(told="get_server_list\n")[1].strip())
        return int(self.run(told="get_server_list\n")[1])

    def close(self) -> None:
        end_daemons(self.folder)
        if hasattr(self, "daemon"):
            self.daemon.wait(PATIENCE_S)


def end_daemons(folder: Path) -> None:
    """End those that have their pipe in there, and what they have started."""
    pause = threading.Event()
    for lock in folder.rglob("control_lock"):
        if (pid := control_pid(lock.parent)) is None:
            continue
        servers = []
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends by itself
            servers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in (pid, *map(int, servers)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        while is_running(pid):
            pause.wait(0.01)


def kind_of(path: Path) -> str:
    mode = path.lstat().st_mode
    return stat.filemode(mode)


def starts(stage: Stage) -> Said:
    """How it starts and what is there then; how it refuses to be started again."""
    found: Said = {"nobody answers": stage.run(told="get_server_list\n")}
    stage.start()
    found |= {"files": stage.files(), "directory": kind_of(stage.folder / "pipe")}
    found["again"] = [stage.run("-f"), stage.run("-d")]
    found["quit"] = stage.run(told="quit\n")
    found["code"] = stage.daemon.wait(PATIENCE_S)
    found["left by quit"] = sorted(stage.files())
    words = ("Starting control", "set env", "Exit with")
    found["log"] = [one for one in stage.log_lines() if any(word in one for word in words)]
    return found


def is_killed(stage: Stage) -> Said:
    """What is left then, and that another one starts over it."""
    found: Said = {}
    for name in ("SIGTERM", "SIGKILL"):
        stage.start()
        stage.daemon.send_signal(getattr(signal, name))
        found[name] = {"code": stage.daemon.wait(PATIENCE_S), "left": sorted(stage.files())}
        found[name]["asked"] = stage.run(told="get_server_list\n")
    stage.start()
    found["after all"] = stage.run(told="quit -t 1\n")
    return found


def in_the_background(stage: Stage) -> Said:
    """By -d: where its log is."""
    found: Said = {"start": stage.run("-d")}
    stage.said = stage.folder / "log" / "control.log"
    stage.wait_for(stage.answers)
    logs = sorted((stage.folder / "log").iterdir())
    found["logs"] = {path.name: kind_of(path) for path in logs}
    found["directory"] = kind_of(stage.folder / "log")
    found["quit"] = stage.run(told="quit\n")[1]
    stage.wait_for(lambda: "Exit with status" in stage.log())
    return found


def answers(stage: Stage) -> Said:
    stage.start()
    found: Said = {"answers": [[line, *stage.ask(line)] for line in COMMANDS.split("\n")[1:-1]]}
    found["log"] = stage.log_lines()[:SESSIONS]
    stage.run(told="quit\n")
    return found


def answers_others(stage: Stage) -> Said:
    """Another user, with a daemon of root's."""
    stage.start()
    lines = OF_OTHERS.strip().split("\n")
    found = {"answers": [[line, *stage.ask(line, user=NOBODY)] for line in lines]}
    stage.run(told="quit\n")
    return found


def is_busy(stage: Stage) -> Said:
    """While a session is open nobody else is answered. Some are told so, others get code 0."""
    stage.start()
    before = stage.log().count("NEW UI")
    session = subprocess.Popen(
        [str(stage.program)], env=stage.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert session.stdin is not None
    session.stdin.write(b"get_default_client_priority\n")
    session.stdin.flush()
    stage.wait_for(lambda: stage.log().count("NEW UI") > before)
    heard: set[tuple[int, str]] = set()

    def is_told() -> bool:
        code, out, err = stage.run(told="get_default_active_thread_percentage\n")
        assert out == ""
        heard.add((code, err))
        return err != ""

    stage.wait_for(is_told)
    out, _ = session.communicate(b"get_default_active_thread_percentage\n")
    stage.wait_for(stage.answers)
    stage.run(told="quit\n")
    return {"refused": max(heard), "session": out.decode()}


def has_servers(stage: Stage) -> Said:
    """One that is killed, by signals of several kinds, and one that is told to end."""
    found: Said = {"ends": []}
    stage.serve_by(STAYS)
    stage.start()
    start = f"start_server -uid {os.geteuid()}"
    for name in ("SIGKILL", "SIGSEGV", "SIGTERM"):
        found["start"] = stage.ask(start)
        server = stage.server()
        found["again"] = stage.ask(start)
        os.kill(server, getattr(signal, name))
        ended = f"Server {server} exited"
        stage.wait_for(lambda ended=ended: ended in stage.log())
        found["ends"].append([name, line(stage, ended).partition(str(server))[2].strip()])
    found["servers"] = stage.ask("get_server_list")
    found["code"] = [stage.run(told="quit\n")[1], stage.daemon.wait(PATIENCE_S)]
    return found


def has_clients(stage: Stage) -> Said:
    """Of two users, A and B: who waits has a line before the end of the other's server.

    A's goes, and then its server, unless that has ended for B's sake.
    """
    stage.serve_by(STAYS)
    stage.start()
    with stage.client(os.geteuid()) as first:
        stage.wait_for(lambda: "Starting new server" in stage.log())
        server = int(line(stage, "Starting new server").split("server ")[1].split()[0])
        with stage.client(NOBODY) as other:
            stage.wait_for(lambda: f"NEW CLIENT {other.pid}" in stage.log())
            first.kill()
            first.wait(PATIENCE_S)
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
            stage.wait_for(lambda: f"Server {server} exited" in stage.log())
            other.kill()
    text = stage.log()
    for name, user in (("A", os.geteuid()), ("B", NOBODY)):
        text = re.sub(rf"user {user}\b", f"user {name}", text)
    said = re.findall(r"\] (NEW CLIENT.*|Starting new.*|Server \d+ exited.*)", text)
    return {"log": [re.sub(r"\b(CLIENT|[Ss]erver) \d+", r"\1 N", one) for one in said[:4]]}


def has_servers_that_fail(stage: Stage) -> Said:
    """Those that end at once: it is not tried again, for nobody waits."""
    stage.serve_by(ENDS)
    stage.start()
    found = {"start": stage.ask(f"start_server -uid {os.geteuid()}")}
    stage.wait_for(lambda: "exited with status" in stage.log())
    found["servers"] = stage.ask("get_server_list")
    found["starts"] = stage.log().count("Starting new server")
    lines = stage.log_lines()
    found["log"] = [one for one in lines if "Starting new" in one or "exited" in one]
    stage.run(told="quit\n")
    found["code"] = stage.daemon.wait(PATIENCE_S)
    return found


def line(stage: Stage, words: str) -> str:
    return next(one for one in stage.log().splitlines() if words in one)


def takes_variables(stage: Stage) -> Said:
    found: Said = {"answers": []}
    for name, value, question in VARIABLES:
        stage.start(**{name: value})
        found["answers"].append([f"{name}={value}", question, *stage.ask(question)])
        stage.run(told="quit\n")
        stage.daemon.wait(PATIENCE_S)
    return found


def has_no_place(stage: Stage) -> Said:
    """A pipe directory that cannot be made, is a file, or has a long name."""
    pipes = "CUDA_MPS_PIPE_DIRECTORY"
    (stage.folder / "file").touch()
    found: Said = {
        name: stage.run("-f", **{pipes: str(stage.folder / place)})
        for name, place in (("no parent", "no/pipe"), ("file", "file"))
    }
    found["lengths"] = []
    for length in LENGTHS:
        place = str(stage.folder) + "/"
        variables = {pipes: place + "n" * (length - len(place))}
        code = stage.run("-d", **variables)[0]
        if code == 0:
            stage.wait_for(lambda v=variables: stage.run(told="quit\n", **v)[0] == 0)
        found["lengths"].append([length, code])
    return found


SCENES = (
    starts,
    is_killed,
    in_the_background,
    answers,
    answers_others,
    is_busy,
    has_servers,
    has_clients,
    has_servers_that_fail,
    takes_variables,
    has_no_place,
)

OF_TWO_USERS = (answers_others, has_clients)  # whom only root can be


def play(scene: Any, program: Path, environment: Mapping[str, str]) -> Said:
    """What is recorded of one scene."""
    folder = Path(tempfile.mkdtemp(prefix="mps-"))  # short: the name of a socket
    folder.chmod(0o777)
    stage = Stage(program, folder, environment)
    before = os.umask(0o022)
    try:
        return scene(stage)
    finally:
        os.umask(before)
        stage.close()
        shutil.rmtree(folder)


def main() -> None:
    version, program = sys.argv[1], Path(sys.argv[2]).absolute()
    found = {scene.__name__: play(scene, program, os.environ) for scene in SCENES}
    text = json.dumps({"version": version, **found}, indent=1)
    # A list without others in it in one line.
    flat = re.sub(r"\[\n[^\[\]{}]*\]", lambda row: re.sub(r"\n *", " ", row[0]), text)
    lines = flat.replace("[ ", "[").replace(" ]", "]")
    (HERE / f"{version}.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()

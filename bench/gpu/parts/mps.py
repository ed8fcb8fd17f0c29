"""Part `mps`: how the MPS control daemon answers, and whom a fatal fault affects.

Runs without Tandem, with a control daemon of our own for each question. One that already runs is
left alone, since these questions would kill its clients.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from bench.gpu.harness import children, native
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.mps import Mps, control_daemon
from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.questions import all_answered, answered
from tandem import _mps
from tandem._mps import Control, Server
from tandem.demo.process import Message, Worker, WorkerError

REFUSED_S = 3.0  # for a fault to reach everybody
BEGUN_S = 15.0  # for a new client to begin
RECOVERED_S = 15.0  # for a server to accept clients again
ANSWER_S = 2.0  # for an answer while it is to quit; quitting takes longer
ENDING_S = 5.0  # for it to stop answering
QUIT_S = 30.0
LOOK_S = 0.1
SUCCESS = "CUDA_SUCCESS"

_ASKING = ("client/tandem/_mps.py", "daemon/tandemd/edges/mps.py", "csrc/softgpu/mps/control.cpp")
BELIEFS = (
    Belief(
        question="What the control daemon says: how many servers before a client and with one, "
        "whether it lists the client by the pid that it has here, the server's status",
        believed="none, one, yes, ACTIVE; a server runs until the daemon ends",
        used_by=_ASKING,
        answers=tuple(
            f"control.{figure}"
            for figure in ("version", "servers_before", "servers", "lists_client", "status")
        ),
    ),
    Belief(
        question="Whether it knows the newer interface (`-p 3 -h`)",
        believed="from driver 615 on",
        used_by=("client/tandem/_mps.py", "docs/partitions.md"),
        answers=("control.has_new_interface",),
    ),
    Belief(
        question="Whether it answers while it is to quit and has a client, whether that goes on",
        believed="no; the client goes on, and quit waits for its end",
        used_by=_ASKING,
        answers=("ending.answers", "ending.client", "ending.waits", "ending.answers_afterwards"),
    ),
    Belief(
        question="What a fatal fault of one process does to another, and to one that comes then",
        believed="without MPS nothing; under it the other has the same error, and who comes then "
        "CUDA_ERROR_MPS_SERVER_NOT_READY until all have gone",
        used_by=("docs/partitions.md", "docs/software-gpu.md", "csrc/softgpu/mps/server.cpp"),
        answers=(
            "fault.time.culprit",
            "fault.time.bystander",
            "fault.time.newcomer",
            "fault.mps.culprit",
            "fault.mps.bystander",
            "fault.mps.status",
            "fault.mps.newcomer",
            "fault.mps.afterwards",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question, each independent of the others."""
    part = _Part(bench)
    with_mps: dict[str, Callable[[Mps], Message]] = {
        "control": part.control,
        "ending": part.ending,
        "fault.mps": part.fault,
    }
    # A server with a fault may take long to answer, so ask first what does not need one.
    without = answered("fault.time", part.fault_without)
    found = {
        name: answered(name, partial(part.under_mps, name, question))
        for name, question in with_mps.items()
    }
    fault = {"mps": found.pop("fault.mps"), "time": without}
    figures = {**found, "fault": fault}
    return {**figures, "ok": all_answered(figures) or bench.where != GPU}


class _Part:
    """Processes, and what they and the control daemon report."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._command = native.command(bench, "client", "memory")

    def under_mps(self, name: str, question: Callable[[Mps], Message]) -> Message:
        """Ask the question with a control daemon of our own; or tell why there is none."""
        if self._bench.where == GPU and self._bench.place.mode == "mps":
            return {"why_not": "MPS runs here already, and has clients of others"}
        folder = self._bench.folder / name
        folder.mkdir()
        with control_daemon(folder, self._bench.place.env(folder / "gpu")) as (mps, why):
            return {"why_not": why} if mps is None else question(mps)

    def control(self, mps: Mps) -> Message:
        """What the control daemon reports about a server and its client."""
        control = mps.control()
        before = control.servers()
        with self._client(mps.environment) as (worker, _):
            server, count = _only(control)
            return {
                "version": control.version,
                "has_new_interface": _mps.takes_files(mps.environment, timeout_s=QUIT_S),
                "servers_before": None if before is None else len(before),
                "servers": count,
                "lists_client": worker.pid in (control.clients(server) or []),
                "status": control.status(server),
                "server_is_seen": os.path.exists(f"/proc/{server.pid}"),
            }

    def ending(self, mps: Mps) -> Message:
        """What the control daemon answers after being told to quit while it has a client."""
        with ThreadPoolExecutor() as pool, self._client(mps.environment) as (worker, _):
            quitting = pool.submit(mps.control().quit)
            control = Control(mps.folder, environment=mps.environment, timeout_s=ANSWER_S)
            end = time.monotonic() + ENDING_S
            while (answers := control.servers() is not None) and time.monotonic() < end:
                time.sleep(LOOK_S)
            found = {
                "answers": answers,
                "client": _did(worker, "work")["result"],
                "waits": not quitting.done(),
            }
            worker.tell("end")
            worker.wait(deadline_s=QUIT_S)
            quitting.result(timeout=QUIT_S)
        end = time.monotonic() + ENDING_S
        while (answers := control.servers() is not None) and time.monotonic() < end:
            time.sleep(LOOK_S)
        return {**found, "answers_afterwards": answers}

    def fault(self, mps: Mps) -> Message:
        """The effect of a fault in one client of a server that has another client."""
        control = mps.control()

        def status() -> str:
            said = [control.status(server) for server in control.servers() or ()]
            return ", ".join(said) or "no server"

        return self._fault(mps.environment, status)

    def fault_without(self) -> Message:
        """The effect of a fault in one of two processes that take turns, without MPS."""
        folder = self._bench.folder / "fault.time"
        folder.mkdir()
        nowhere = {_mps.PIPES: str(folder / "nowhere")}
        return self._fault({**self._bench.place.env(folder / "gpu"), **nowhere}, lambda: "no MPS")

    def _fault(self, env: Mapping[str, str], status: Callable[[], str]) -> Message:
        with self._client(env) as (bystander, _), self._client(env) as (culprit, _):
            found: Message = {"culprit": _did(culprit, "fault")["result"]}
            seen = _did(bystander, f"until {REFUSED_S * 1e3:.0f}")
            found |= {"bystander": seen["result"], "bystander_ms": seen["ms"], "status": status()}
            found["newcomer"], _ = self._newcomer(env)
            for worker in (bystander, culprit):
                worker.tell("end")
                worker.wait(deadline_s=QUIT_S)
        return found | self._afterwards(env)

    def _afterwards(self, env: Mapping[str, str]) -> Message:
        """Start new clients until one gets no error, or for as long as recovery may take."""
        begin = time.monotonic()
        while True:
            said, answered_s = self._newcomer(env)
            took_s = answered_s - begin
            if said == SUCCESS or took_s > RECOVERED_S:
                return {"afterwards": said, "afterwards_ms": round(took_s * 1e3, 1)}
            time.sleep(LOOK_S)

    def _newcomer(self, env: Mapping[str, str]) -> tuple[str, float]:
        """What the driver tells a client that starts now, and when, on the monotonic clock."""
        with children.talking(self._bench, self._command, env) as worker:
            try:
                said = str(worker.wait_for("ready", deadline_s=BEGUN_S)["result"])
            except WorkerError as failure:
                said = str(failure)
            return said, time.monotonic()

    def _client(self, env: Mapping[str, str]) -> AbstractContextManager[tuple[Worker, Message]]:
        return children.ready(self._bench, self._command, env)


def _did(worker: Worker, order: str) -> Message:
    worker.tell(order)
    return children.heard(worker, "did")


def _only(control: Control) -> tuple[Server, int]:
    """The first server, and how many there are."""
    servers = control.servers()
    if not servers:
        raise WorkerError(f"the control daemon names no server: {servers}")
    return servers[0], len(servers)


if __name__ == "__main__":
    main(measure)

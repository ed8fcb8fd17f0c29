"""MPS on the software GPU: the control program, servers, limits, and what a crash does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from mps.record import end_daemons

from tandem import softgpu
from tandem._mps import control_pid, is_running

READY = 'print("ready", flush=True)\n'
WAIT = "with outside(): sys.stdin.readline()\n"
WORK = "gpu.affine(gpu.word(1), 3, 1, slow=True); ok(cu.cuCtxSynchronize())\n"
# The news of another process's end takes some time.
UNTIL_REFUSED = """
while (error := cu.cuMemGetInfo()[0]) == cu.CUresult.CUDA_SUCCESS: pass
print(error.name.removeprefix("CUDA_ERROR_"), refused(cu.cuMemAlloc(16)))
"""
CONTROL = softgpu.DEVICE_PROGRAM.parent / "nvidia-cuda-mps-control"


@dataclass
class Mps:
    """A control daemon with its own directories, beside a software GPU."""

    gpu: object
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log"),
        }

    def run(self, *options: str, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        everything = self.gpu.env(**self.env, **env)
        return subprocess.run(
            [str(CONTROL), *options],
            env=everything,
            input=text,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def start(self, **env: str) -> None:
        assert self.run("-d", **env).returncode == 0

    def ask(self, *commands: str) -> str:
        return self.run(text="\n".join(commands)).stdout

    def log(self, name: str = "control") -> str:
        return (self.folder / "log" / f"{name}.log").read_text()

    def until(self, words: str) -> None:
        pause = threading.Event()
        while words not in self.log():
            pause.wait(0.01)

    def until_status(self, status: str, server: str) -> None:
        """Wait until the control daemon hears it from the server, and that from the device."""
        pause = threading.Event()
        while self.ask(f"get_server_status {server}") != f"{status}\n":
            pause.wait(0.01)

    def client(self, program: str, **env: str) -> subprocess.Popen[str]:
        return self.gpu.start(program, **self.env, **env)


@pytest.fixture
def mps(gpu):
    folder = Path(tempfile.mkdtemp(prefix="mps-"))  # pytest's names are too long for a socket
    made = Mps(gpu, folder)
    yield made
    end_daemons(folder)
    shutil.rmtree(folder, ignore_errors=True)


def finish(child, text: str = "\n") -> str:
    out, err = child.communicate(text, timeout=60)
    assert child.returncode == 0, err
    return out.strip()


def ready(child):
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    return child


@pytest.mark.slow
def test_clients_of_a_running_control_overlap_and_others_take_turns(gpu, mps):
    gpu.options["start_clients"] = "3"
    mps.start()
    children = [mps.client("gpu = Gpu()\n" + WORK) for _ in range(2)]
    children.append(gpu.start("gpu = Gpu()\n" + WORK, CUDA_MPS_PIPE_DIRECTORY="/nowhere"))
    plain = children[2].pid
    for child in children:
        finish(child)

    rows = [row for row in gpu.timeline() if row["name"] == "slow_affine"]
    alone = [row for row in rows if row["pid"] == plain]
    together = [row for row in rows if row["pid"] != plain]
    assert together[0]["t_start_ns"] < together[1]["t_end_ns"]
    assert together[1]["t_start_ns"] < together[0]["t_end_ns"]
    for mine in alone:
        for row in together:
            assert mine["t_end_ns"] <= row["t_start_ns"] or row["t_end_ns"] <= mine["t_start_ns"]


def test_the_control_program_knows_its_servers_and_clients(mps):
    mps.start()
    assert mps.run("-d").returncode == 1  # one per directory
    assert mps.ask("get_server_list") == ""

    client = ready(mps.client("gpu = Gpu()\n" + READY + WAIT))
    server = mps.ask("get_server_list").strip()
    assert mps.ask(f"get_client_list {server}") == f"{client.pid}\n"
    assert mps.ask(f"get_server_status {server}") == "ACTIVE\n"
    device, pid = mps.ask("get_device_client_list").split()
    assert device.startswith("GPU-")
    assert int(pid) == client.pid
    assert str(client.pid) in mps.ask("ps").splitlines()[1]
    assert mps.ask(f"ps -p {server}") == mps.ask("ps")
    finish(client)

    assert mps.ask(f"get_client_list {server}") == ""


def test_a_server_that_is_told_to_end_does_once_its_clients_have_gone(mps):
    mps.start()
    first = ready(mps.client("gpu = Gpu()\n" + READY + WAIT))
    server = mps.ask("get_server_list").strip()
    assert mps.ask(f"shutdown_server {server}") == ""
    second = ready(mps.client("gpu = Gpu()\n" + READY + WAIT))  # it still accepts new clients
    finish(first)
    assert mps.ask("get_server_list").strip() == server
    finish(second)

    mps.until(f"Server {server} exited with status 0")

    assert mps.ask("get_server_list") == ""
    assert "NEW CLIENT" in mps.log()


def test_clients_count_the_devices_that_the_control_daemon_was_shown(gpu, mps):
    gpu.options |= {"devices": "3"}
    listed = gpu.run("""
import pynvml as nv
nv.nvmlInit()
print(*[nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByIndex(i)) for i in range(3)])
""").split()
    mps.start(CUDA_VISIBLE_DEVICES=f"{listed[2]},{listed[1]}")
    seen = """
ok(cu.cuInit(0))
print(*[bytes(ok(cu.cuDeviceGetUuid(d)).bytes).hex() for d in range(ok(cu.cuDeviceGetCount()))])
"""

    def devices(**env: str) -> list[int]:
        plain = [uuid.removeprefix("GPU-").replace("-", "") for uuid in listed]
        return [plain.index(one) for one in finish(mps.client(seen, **env)).split()]

    assert devices() == [2, 1]
    assert devices(CUDA_VISIBLE_DEVICES="1") == [1]
    assert devices(CUDA_VISIBLE_DEVICES="0") == [2]
    assert devices(CUDA_VISIBLE_DEVICES=listed[1]) == [1]
    for none_of_them in ("2", listed[0]):
        refusal = mps.client("print(refused(cu.cuInit(0)))", CUDA_VISIBLE_DEVICES=none_of_them)
        assert finish(refusal) == "NO_DEVICE", none_of_them


def test_a_control_daemon_that_is_shown_no_device_has_no_server(mps):
    mps.start(CUDA_VISIBLE_DEVICES="7")

    assert finish(mps.client("print(refused(cu.cuInit(0)))")) == "MPS_CONNECTION_FAILED"


@pytest.mark.slow
def test_limits_hold_for_clients_that_come_later(gpu, mps):
    mps.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="75")
    assert mps.ask("get_default_active_thread_percentage") == "75.0\n"
    fill = "gpu = Gpu()\nok(gpu.launch('count_up', (), (), grid=1000)); ok(cu.cuCtxSynchronize())\n"
    finish(mps.client(fill))
    server = mps.ask("get_server_list").strip()
    assert mps.ask(f"set_active_thread_percentage {server} 50") == "50.0\n"
    assert mps.ask(f"set_active_thread_percentage {server} 101") == "50.0\n"
    finish(mps.client(fill))
    finish(mps.client(fill, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25"))
    finish(mps.client(fill, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="80"))

    sms = [row["sms"] for row in gpu.timeline() if row["name"] == "count_up"]
    assert sms == [6, 4, 2, 4]


def test_kernels_see_the_sms_that_the_percentage_leaves_them(gpu, mps):
    mps.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25")
    note = """
gpu = Gpu()
noted = ok(cu.cuMemAlloc(4 * 256))
for _ in range(3): ok(gpu.launch("note_sm", (noted,), (None,), grid=256))  # one behind the other
print(*sorted(set(gpu.read(noted, 256))))
"""

    seen = finish(mps.client(note)).split()

    assert seen == ["0", "1"]
    assert [row["sm_set"] for row in gpu.timeline()] == ["0-1"] * 3


def test_memory_limits_are_those_of_the_device_and_client(mps):
    mps.start()
    assert mps.ask("set_default_device_pinned_mem_limit 0 64M") == ""
    assert mps.ask("get_default_device_pinned_mem_limit 0") == "64M\n"
    fill = """
gpu = Gpu()
print(ok(cu.cuMemGetInfo())[0] >> 20)
kept = ok(cu.cuMemAlloc(20 << 20))
print(refused(cu.cuMemAlloc(50 << 20)))
"""
    # The context itself takes 8 of 64 MiB.
    assert finish(mps.client(fill)).split() == ["56", "OUT_OF_MEMORY"]
    limited = mps.client(fill, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=32M")
    assert finish(limited).split() == ["24", "OUT_OF_MEMORY"]


def test_a_client_of_lower_priority_comes_last(gpu, mps):
    gpu.options["start_clients"] = "2"
    mps.start()
    full = (
        "gpu = Gpu()\nw = gpu.word(1)\n"
        "for i in range(3): ok(gpu.launch('slow_affine', (w, 1, 1), "
        "(None, ctypes.c_uint, ctypes.c_uint), grid=1000))\n"
        "ok(cu.cuCtxSynchronize())\n"
    )
    low = mps.client(full, CUDA_MPS_CLIENT_PRIORITY="1")
    normal = mps.client(full)
    finish(low)
    finish(normal)

    ends = {row["pid"]: row["t_end_ns"] for row in gpu.timeline() if row["name"] == "slow_affine"}
    assert ends[normal.pid] < ends[low.pid]


def test_a_terminated_client_hears_of_it_and_the_others_go_on(mps):
    mps.start()
    victim = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + UNTIL_REFUSED))
    other = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + WORK + "print('fine')"))
    server = mps.ask("get_server_list").strip()
    assert mps.ask(f"terminate_client {server} 1") == "Invalid process 1!\n"
    assert mps.ask(f"terminate_client {server} {victim.pid}") == ""

    assert finish(other) == "fine"
    assert finish(victim) == "MPS_CLIENT_TERMINATED MPS_CLIENT_TERMINATED"


def test_a_crashed_server_takes_its_clients_along_and_another_is_started(mps):
    mps.start()
    client = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + UNTIL_REFUSED))
    server = int(mps.ask("get_server_list"))
    os.kill(server, signal.SIGKILL)

    assert finish(client) == "MPS_RPC_FAILURE MPS_RPC_FAILURE"
    assert finish(mps.client("gpu = Gpu()\n" + WORK + "print('fine')")) == "fine"
    assert int(mps.ask("get_server_list")) != server


@pytest.mark.slow
def test_a_fault_of_one_client_hits_all_and_the_server_recovers(mps):
    mps.start()
    other = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + UNTIL_REFUSED))
    bad = mps.client(
        "gpu = Gpu()\nok(gpu.launch('poke', (8,), (ctypes.c_void_p,)))\n"
        "print(refused(cu.cuCtxSynchronize()))"
    )
    assert finish(bad) == "ILLEGAL_ADDRESS"
    server = mps.ask("get_server_list").strip()
    mps.until_status("FAULT", server)
    assert finish(mps.client("print(refused(cu.cuInit(0)))")) == "MPS_SERVER_NOT_READY"
    assert finish(other) == "ILLEGAL_ADDRESS ILLEGAL_ADDRESS"

    assert finish(mps.client("gpu = Gpu()\n" + WORK + "print('fine')")) == "fine"
    mps.until_status("ACTIVE", server)


def test_quit_waits_for_clients_and_with_a_timeout_does_not(mps):
    mps.start()
    client = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + UNTIL_REFUSED))
    mps.ask("quit -t 0.01")

    assert finish(client) == "MPS_RPC_FAILURE MPS_RPC_FAILURE"
    assert mps.run(text="get_server_list").returncode == 1
    assert finish(mps.client("gpu = Gpu()\n" + WORK + "print('fine')")) == "fine"  # without MPS


def test_a_control_socket_that_nobody_answers_fails_the_start(mps):
    mps.start(TANDEM_SOFTGPU_BIN="/nowhere")
    out = finish(mps.client("print(refused(cu.cuInit(0)))"))

    assert out == "MPS_CONNECTION_FAILED"
    assert mps.log().count("Starting new server") == 6  # as often as NVIDIA's tries it for a client
    assert mps.log().count("exited with status 1") == 6
    assert "Failed to start : " in mps.log("server")


def test_what_tests_have_started_is_ended_whatever_it_does(mps):
    mps.start()
    client = ready(mps.client("gpu = Gpu()\n" + READY + WAIT + UNTIL_REFUSED))
    server = int(mps.ask("get_server_list"))
    with subprocess.Popen([CONTROL], env=mps.gpu.env(**mps.env), stdin=subprocess.PIPE) as asker:
        asker.stdin.write(b"quit\n")
        asker.stdin.flush()
        mps.until("Cmd:quit")  # it answers nobody now and waits for its client

        end_daemons(mps.folder)

    assert finish(client) == "MPS_RPC_FAILURE MPS_RPC_FAILURE"
    assert control_pid(mps.folder / "pipe") is None
    assert not is_running(server)

"""The real device process over its socket: life, death, misbehaving clients, and the two clocks."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from softgpu_wire import (
    OBSERVER,
    QUERY_ONLY,
    ROOT,
    Client,
    binary,
    pack,
    submit_message,
    wait_until,
)

from tandem.softgpu._query import device_status

MS = 1_000_000
GIB = 1 << 30

# Holds memory and a hanging amount of work, says so on stdout, and waits to be killed.
VICTIM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from softgpu_wire import Client
client = Client(Path(sys.argv[1]), name="victim")
client.context(); client.stream()
client.reserve(512 << 20)
client.submit("kernel", traffic=1e9, name="endless", needs_body=True)
for _ in range(100): client.submit("kernel", traffic=1e9, name="behind")
if sys.argv[3] == "idle": client.idle()
print("ready", flush=True)
sys.stdin.read()
"""


def connect(device, **more):
    client = Client(device.directory, **more)
    device.clients.append(client)
    if not client.flags:
        client.context()
        client.stream()
    return client


def start_victim(device, state):
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(device.directory), str(Path(__file__).parent), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout.readline() == "ready\n"
    return victim


def kill(victim):
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=20)


def test_a_virtual_kernel_lasts_what_its_traffic_says(start_device):
    device = start_device()
    client = connect(device)

    op = client.submit("kernel", traffic=1e6, name="vadd", needs_body=True)
    _, start_ns, end_ns, status, _ = client.run_until_done(op)

    assert (start_ns, end_ns, status) == (0, MS, 0)
    line = device.timeline()[0]
    assert (line["name"], line["t_end_ns"], line["pid"]) == ("vadd", MS, os.getpid())


def test_a_real_kernel_never_ends_early(start_device):
    device = start_device(clock="real")
    client = connect(device)

    client.submit("kernel", traffic=2e6)
    _, start_ns, end_ns, status, _ = client.wait_for("done")

    assert (end_ns - start_ns, status) == (2 * MS, 0)


def test_two_runs_give_the_same_timeline(start_device, tmp_path):
    def run(name):
        (tmp_path / name).mkdir()
        device = start_device(tmp_path / name, mode="mps")
        first, second = connect(device), connect(device)
        for i in range(20):
            first.submit("kernel", traffic=1e5 * (i % 7), blocks=1 + i, needs_body=i % 2 == 0)
            second.submit("htod", size=12_345 * i, needs_body=True)
        with ThreadPoolExecutor() as pool:
            for client in (first, second):
                pool.submit(client.run_until_finished)
        assert len(device.timeline()) >= 40
        return device.timeline_path.read_bytes()

    assert run("one") == run("two")


@pytest.mark.parametrize("state", ["busy", "idle"])
def test_a_killed_client_frees_its_memory_and_wedges_nobody(start_device, state):
    device = start_device()
    victim = start_victim(device, state)
    client = connect(device)
    assert client.free_bytes() == GIB - (512 << 20)

    kill(victim)
    op = client.submit("kernel", traffic=1e6, name="mine")
    _, _, _, status, _ = client.run_until_done(op)

    assert status == 0
    wait_until(lambda: client.free_bytes() == GIB, "the victim's memory is back")
    assert client.ask(0)["client_count"] == 1


def test_a_killed_client_on_the_real_clock_gives_up_the_gpu(start_device):
    device = start_device(clock="real")
    victim = start_victim(device, "busy")
    client = connect(device)

    kill(victim)
    client.submit("kernel", traffic=1e6, name="mine")

    assert client.wait_for("done")[3] == 0


def test_a_second_process_on_the_directory_says_so_and_ends(start_device):
    first = start_device()
    second = start_device()

    _, error = second.process.communicate(timeout=20)

    assert not second.ready
    assert second.process.returncode == 1
    assert "already runs" in error
    assert connect(first).free_bytes() == GIB


def test_a_stale_socket_is_replaced(start_device):
    device = start_device()
    device.process.kill()
    device.process.wait(timeout=20)
    assert (device.directory / "softgpu.sock").exists()

    assert connect(start_device()).free_bytes() == GIB


def test_the_socket_is_for_its_user_alone(start_device):
    device = start_device()

    mode = (device.directory / "softgpu.sock").stat().st_mode

    assert stat.S_IMODE(mode) == 0o600


def test_it_ends_after_its_last_client_and_the_timeline_is_complete(start_device):
    device = start_device(linger_ms=50)
    client = connect(device)
    client.run_until_done(client.submit("kernel", traffic=1e6))
    client.close()

    assert device.process.wait(timeout=20) == 0
    assert len(device.timeline()) == 1
    assert not (device.directory / "softgpu.sock").exists()


def test_a_query_does_not_keep_it_alive(start_device):
    device = start_device(linger_ms=50)
    worker = connect(device)
    query = connect(device, flags=QUERY_ONLY)
    assert query.ask(1)["devices"][0]["name"].startswith("Tandem Software GPU")

    worker.close()

    assert device.process.wait(timeout=20) == 0


def test_the_parents_pipes_are_let_go(start_device):
    device = start_device()

    # Both pipes end although the device lives on: it writes to its log instead.
    assert device.process.stdout.read() == ""
    assert device.process.stderr.read() == ""
    assert device.process.poll() is None


@pytest.mark.slow
def test_an_observer_that_stops_does_not_stop_the_world(start_device):
    device = start_device()
    observer = connect(device, flags=OBSERVER)
    client = connect(device)

    op = client.submit("kernel", traffic=1e6)
    _, _, end_ns, _, _ = client.run_until_done(op)  # the device waits 2 s of real time

    assert end_ns == MS
    observer.send(pack("sync_time"))
    assert observer.wait_for("time") == (MS,)


@pytest.mark.parametrize("packet", [b"x", b"\0" * 8, b"\xff" * 512, pack("time", 5)])
def test_garbage_closes_its_own_connection_only(start_device, packet):
    device = start_device()
    bad, good = connect(device), connect(device)

    bad.send(packet)

    assert bad.receive() == []
    assert good.free_bytes() == GIB


def test_one_that_never_says_hello_disturbs_nobody(start_device):
    device = start_device()
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.connect(str(device.directory / "softgpu.sock"))
    client = connect(device)

    op = client.submit("kernel", traffic=1e6)

    assert client.run_until_done(op)[2] == MS
    silent.close()


def test_another_protocol_is_refused(start_device):
    device = start_device()

    assert connect(device, protocol=99, flags=OBSERVER).welcome[1] == 0


def test_a_client_that_does_not_read_does_not_block_the_others(start_device):
    device = start_device(clock="real")
    deaf, client = connect(device), connect(device)
    for first in range(1, 200 * 300, 200):
        deaf.send(b"".join(submit_message(op, "event") for op in range(first, first + 200)))

    client.submit("kernel", traffic=1e6)

    assert client.wait_for("done")[3] == 0
    seen = 0
    while seen < 200 * 300:
        seen += sum(name == "done" for name, _ in deaf.receive())
    assert seen == 200 * 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "h100"], "h200, a100, rtx4090, tiny, mini"),
        (["--faults", "melt@1"], "unknown fault 'melt@1'"),
        (["--what"], "unknown argument '--what'"),
    ],
)
def test_bad_settings_are_named(tmp_path, arguments, words):
    done = subprocess.run(
        [binary(), "--dir", tmp_path, *arguments], capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["--profile", "h20"], "h200"),
        (["--clock", "virtul"], "virtual"),
        (["--mode", "msp"], "mps"),
        (["--profil", "tiny"], "--profile"),
    ],
)
def test_what_was_meant_is_suggested(tmp_path, arguments, meant):
    done = subprocess.run(
        [binary(), "--dir", tmp_path, *arguments], capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 2
    assert f"(did you mean '{meant}'?)" in done.stderr.splitlines()[0]


def test_a_full_disk_ends_the_timeline_and_nothing_else(start_device):
    device = start_device(timeline="/dev/full")
    client = connect(device)

    for _ in range(3):
        client.submit("kernel", traffic=1e6)
        client.idle()
        assert client.wait_for("done")[3] == 0

    assert json.loads(device_status(device.directory))["timeline"] == "incomplete"
    assert device.log().count("the timeline is incomplete from here on") == 1


def test_a_timeline_that_may_not_grow_ends_with_a_whole_line(start_device, tmp_path):
    path = tmp_path / "t.jsonl"
    device = start_device(timeline=path)
    device.limit_files_to(4000)
    client = connect(device)

    for _ in range(40):
        client.submit("kernel", traffic=1e6)
        client.idle()
        assert client.wait_for("done")[3] == 0

    lines = path.read_text().splitlines()
    assert len(lines) >= 10
    assert all(json.loads(line)["kind"] == "kernel" for line in lines[:-1])
    assert json.loads(lines[-1]) == {"incomplete": True}
    assert json.loads(device_status(device.directory))["timeline"] == "incomplete"


def test_a_flood_of_questions_disconnects_who_asks(start_device):
    device = start_device(clock="real")
    greedy, client = connect(device), connect(device)

    greedy.send(pack("query", 1, 0, 0) * 2000)

    client.submit("kernel", traffic=1e6)
    assert client.wait_for("done")[3] == 0
    wait_until(lambda: "too many questions at once" in device.log(), "the flood is refused")


def flood_until_disconnected(client):
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for first in range(10, 400_000, 300):  # as many as fit in a packet
            ops = range(first, first + 300)
            client.send(b"".join(submit_message(op, "kernel", traffic=1) for op in ops))
        pytest.fail("the device queues everything")


@pytest.mark.slow
def test_more_operations_than_can_be_queued_disconnect_their_sender(start_device):
    device = start_device(clock="real")
    flood, client = connect(device), connect(device)
    flood.submit("kernel", traffic=1e15)

    flood_until_disconnected(flood)

    client.submit("htod", size=1000)
    assert client.wait_for("done")[3] == 0
    wait_until(lambda: "more operations than the device can queue" in device.log(), "the line")
    assert device.resident_bytes() < 100 << 20


def test_the_documentation_names_every_setting():
    text = (ROOT / "docs/software-gpu.md").read_text()
    source = (ROOT / "csrc/softgpu/device/settings.cpp").read_text()

    names = [word for word in source.split('"') if word.startswith("TANDEM_SOFTGPU_")]

    assert [n for n in names if n.isupper() and n not in text] == []


def test_asked_to_hurry_a_device_ends_once_it_has_no_client_and_not_before(start_device):
    device = start_device(linger_ms=3_600_000)
    client = connect(device)

    def is_gone_when_asked():
        device.process.send_signal(signal.SIGUSR1)
        return device.process.poll() is not None

    assert not is_gone_when_asked()
    client.submit("kernel", traffic=1e6)
    client.idle()
    assert client.wait_for("done")[3] == 0

    client.close()
    wait_until(is_gone_when_asked, "the end of the device")
    assert device.process.returncode == 0


def test_settings_can_be_checked_without_a_device(tmp_path):
    words = ("--dir", tmp_path / "none", "--profile", "a100", "--faults", "oom@3,launch:vadd@1")

    done = subprocess.run(
        [binary(), *words, "--check"], capture_output=True, text=True, timeout=20, check=True
    )

    found = json.loads(done.stdout)
    assert (found["profile"], found["faults"]) == ("a100", "oom@3,launch:vadd@1")
    assert (found["device_count"], found["mig"], found["linger_ms"]) == (1, "", 2000)
    assert not (tmp_path / "none").exists()

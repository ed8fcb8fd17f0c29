"""A client of the device process in plain Python: the packets of protocol.h, built with struct."""

import json
import os
import resource
import socket
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NEVER = 2**64 - 1
OBSERVER, QUERY_ONLY = 1, 2

TYPES = [
    *("hello", "welcome", "context_create", "context_destroy", "stream_create", "stream_destroy"),
    *("mem_reserve", "mem_reply", "mem_release", "mem_info", "mem_info_reply"),
    *("submit", "start", "body", "done", "idle", "time"),
    *("query", "query_reply", "fault", "sync_time", "stream_confine"),
]
NUMBER = {name: i + 1 for i, name in enumerate(TYPES)}
KINDS = ["kernel", "htod", "dtoh", "dtod", "memset", "host", "event", "memop_write", "memop_wait"]

# The layout after the header; the rest is text, or the device table of WELCOME.
LAYOUT = {
    "hello": "II64s",
    "welcome": "IIIIQII",
    "context_create": "QII",
    "context_destroy": "Q",
    "stream_create": "QQiI",
    "stream_destroy": "Q",
    "mem_reserve": "QQII",
    "mem_reply": "QQII",
    "mem_release": "Q",
    "mem_info": "QII",
    "mem_info_reply": "QQQ",
    "start": "QQ",
    "body": "QIIQddd",
    "done": "QQQII",
    "idle": "QQ",
    "time": "Q",
    "query": "QII",
    "query_reply": "QII",
    "fault": "QII",
    "sync_time": "",
    "stream_confine": "QQQQQ",
}


def pack(name: str, *values: object) -> bytes:
    body = struct.pack("<" + LAYOUT[name], *values)
    return struct.pack("<HHI", NUMBER[name], 8 + len(body), 0) + body


def binary() -> Path:
    named = os.environ.get("TANDEM_SOFTGPU_BINARY")
    places = [Path(named)] if named else []
    places += [
        ROOT / "client/tandem/softgpu/bin/tandem-softgpu",
        ROOT / "build/native/release/tandem-softgpu",
    ]
    return next(p for p in places if p.is_file())


class DeviceProcess:
    """One running tandem-softgpu with its directory."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.clients: list[Client] = []
        self.timeline_path = directory / "timeline.jsonl"
        values = {"clock": "virtual", "profile": "tiny", "timeline": self.timeline_path, **settings}
        ready, ready_write = os.pipe()
        command = [str(binary()), "--dir", str(directory), "--ready-fd", str(ready_write)]
        for name, value in values.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        bare = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        self.process = subprocess.Popen(
            command,
            pass_fds=(ready_write,),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=bare,
        )
        os.close(ready_write)
        self.ready = os.read(ready, 1) == b"r"  # at end of file it has ended
        os.close(ready)

    def limit_files_to(self, size: int) -> None:
        """From now on, limit the size of every file that it writes."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, size))

    def log(self) -> str:
        return (self.directory / "softgpu.log").read_text()

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def timeline(self) -> list[dict]:
        return [json.loads(line) for line in self.timeline_path.read_text().splitlines()]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.process.terminate()
        self.process.communicate(timeout=20)


@dataclass
class Client:
    """One connection. `got` collects all messages from the device as (name, values)."""

    directory: Path
    flags: int = 0
    name: str = "test"
    protocol: int = 4
    received: int = 0
    got: list[tuple] = field(default_factory=list)
    ops: int = 0

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(str(self.directory / "softgpu.sock"))
        self.send(pack("hello", self.protocol, self.flags, self.name.encode()))
        self.welcome = self.wait_for("welcome")

    def send(self, *messages: bytes) -> None:
        self.socket.send(b"".join(messages))

    def receive(self) -> list[tuple]:
        """Return one packet's messages, or an empty list if the device closed the connection."""
        try:
            packet = self.socket.recv(65536)
        except ConnectionResetError:
            return []
        if not packet:
            return []
        self.received += 1
        messages = []
        at = 0
        while at < len(packet):
            number, size, _ = struct.unpack_from("<HHI", packet, at)
            name = TYPES[number - 1]
            layout = "<" + LAYOUT[name]
            values = struct.unpack_from(layout, packet, at + 8)
            if name == "query_reply":
                text_at = at + 8 + struct.calcsize(layout)
                values = (values[0], packet[text_at : text_at + values[1]].decode())
            messages.append((name, values))
            at += size
        self.got += messages
        return messages

    def wait_for(self, name: str) -> tuple:
        while True:
            messages = self.receive()
            if not messages:
                raise ConnectionError(f"closed while waiting for {name}")
            for message in messages:
                if message[0] == name:
                    return message[1]

    def context(self, number: int = 1, *, sm_percent: int = 100) -> None:
        self.send(pack("context_create", number, 0, sm_percent))

    def stream(self, number: int = 1, *, context: int = 1, priority: int = 0) -> None:
        self.send(pack("stream_create", context, number, priority, 0))

    def submit(self, kind: str, *, stream: int = 1, context: int = 1, **more: object) -> int:
        self.ops += 1
        self.send(submit_message(self.ops, kind, stream=stream, context=context, **more))
        return self.ops

    def reserve(self, size: int, kind: int = 0) -> tuple[int, int]:
        """Reserve memory; return (allocation, status)."""
        self.send(pack("mem_reserve", 1, size, 0, kind))
        _, allocation, status, _ = self.wait_for("mem_reply")
        return allocation, status

    def free_bytes(self) -> int:
        self.send(pack("mem_info", 1, 0, 0))
        return self.wait_for("mem_info_reply")[1]

    def ask(self, what: int) -> dict:
        self.send(pack("query", 1, what, 0))
        return json.loads(self.wait_for("query_reply")[1])

    def idle(self, deadline_ns: int = NEVER) -> None:
        self.send(pack("idle", self.received, deadline_ns))

    def run_until_done(self, op: int) -> tuple:
        """Take part in the virtual clock, executing bodies at once, until `op` has ended."""
        while True:
            self.idle()
            messages = self.receive()
            if not messages:
                raise ConnectionError("closed")
            for name, values in messages:
                if name == "start":
                    self.send(pack("body", values[0], 0, 0, 0, 0.0, 0.0, 0.0))
            for name, values in messages:
                if name == "done" and values[0] == op:
                    return values

    def run_until_finished(self) -> None:
        """Do so until everything submitted has ended; then idle, so that others can continue."""
        self.run_until_done(self.ops)
        self.idle()

    def close(self) -> None:
        self.socket.close()


def submit_message(
    op: int,
    kind: str,
    *,
    stream: int = 1,
    context: int = 1,
    needs_body: bool = False,
    blocks: int = 8,
    threads: int = 256,
    flops: float = 0,
    traffic: float = 0,
    size: int = 0,
    name: str = "",
    deps: tuple[int, ...] = (),
) -> bytes:
    """Return a SUBMIT; `traffic` and `flops` are a kernel's totals, divided among its blocks."""
    body = struct.pack(
        "<QQQIIQIIddQ4I64s",
        op,
        context,
        stream,
        KINDS.index(kind),
        int(needs_body),
        blocks,
        threads,
        len(deps),
        flops / blocks,
        traffic / blocks,
        size,
        *(0, 0, 0, 0),  # flags, priority, blocks per SM, least SMs: all default
        name.encode(),
    ) + struct.pack(f"<{len(deps)}Q", *deps)
    return struct.pack("<HHI", NUMBER["submit"], 8 + len(body), 0) + body


def wait_until(condition: object, what: str) -> None:
    """Poll, for 20 s at most, for something another process does without sending a message."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.005)

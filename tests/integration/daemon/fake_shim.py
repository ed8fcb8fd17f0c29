"""A shim in Python: it speaks the attach protocol by hand and maps the three pages.

Written from csrc/core/wire.h and shm_layout.h, not from the daemon's code. It is also a program,
for tests that need a client with another uid or one that can be killed:

    fake_shim.py SOCKET [--uid N] [--job N] [--class N]    attaches, prints its WELCOME, waits
"""

import argparse
import array
import json
import mmap
import os
import socket
import struct
import sys
import time

PATIENCE_S = 60  # of real time, which a busy machine needs more of
MAGIC = 0x4D444E54
HELLO, WELCOME, MAPPED, PRESENCE, PRESENCE_GONE, REFUSED, REGISTER, REGISTERED = range(1, 9)
SHARED, USES = 9, 10
LATENCY, NORMAL, BATCH = 1, 2, 3
YES, NO = 1, 2
FEATURE_SWAP = 32
HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=IIQQQII64s64s")
GATE_OFFSET, FLAGS_OFFSET, WINDOW_OFFSET, CLASS_OFFSET, MASK_OFFSET = 64, 68, 72, 76, 96
WAITS_OFFSET, SLOTS_OFFSET = 192, 4096
FLAG_HONOUR_PRESENCE, FLAG_RELEASED = 1, 4
MONOTONIC, VIRTUAL = 0, 1  # wire::ClockKind
STATE_HEADER_BYTES = 64
TICKS_OFFSET = 64 + 16  # ns_per_tick_q32, tick_base_ns, tick_base
RING_OFFSET, RINGS_OFFSET, RING_RECORDS = 5 * 4096, 6 * 4096, 1024
RECORD = struct.Struct("<QBBHIQQQIIQQ")


def packet(kind, body=b"", *, version=1):
    return HEADER.pack(MAGIC, version, kind, HEADER.size + len(body), 0) + body


def request(*, job_class=NORMAL, memory=0, memory_percent=0, swappable=0, name="", group=""):
    asked = memory_percent | swappable << 8  # two bytes, little-endian
    return REQUEST.pack(job_class, 0, memory, 0, 0, 0, asked, name.encode(), group.encode())


def hello(*, job_id=0, layouts=(1, 1), version=1, devices=(), clock=MONOTONIC, **asked):
    head = struct.pack("=IIIIQ", *layouts, 0x000100, clock, job_id)
    return packet(
        HELLO,
        head
        + request(**asked)
        + struct.pack("=II", len(devices), 0)
        + b"".join(devices).ljust(256, b"\0"),
        version=version,
    )


def register(command="train", **asked):
    return packet(REGISTER, request(**asked) + struct.pack("256s", command.encode()))


class Shim:
    """One connection; `attach` turns it into a process with pages."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.fds = []

    def receive(self):
        """Return type, body and fds of the next packet; at the end, type 0."""
        room = socket.CMSG_SPACE(16 * 4)
        data, rights, _, _ = self.socket.recvmsg(4096, room)
        fds = array.array("i")
        for _, _, payload in rights:
            fds.frombytes(payload)
        self.fds += fds
        if not data:
            return 0, b"", []
        magic, _, kind, size, _ = HEADER.unpack_from(data)
        assert magic == MAGIC
        assert size == len(data)
        return kind, data[HEADER.size :], list(fds)

    def attach(self, *, mapped=True, **asked):
        self.socket.send(hello(**asked))
        kind, body, fds = self.receive()
        assert kind == WELCOME, body
        self.layout, self.clock, self.process_id, self.job_id, state_bytes, self.features = (
            struct.unpack_from("=IIQQQQ", body)
        )
        self.command = mmap.mmap(fds[0], 4096, prot=mmap.PROT_READ)
        self.state = mmap.mmap(fds[1], state_bytes)
        self.presence = mmap.mmap(fds[2], 4096)
        if mapped:
            self.socket.send(packet(MAPPED))
        return self

    def share(self, key):
        """Say that the process has something that others with the same key have, too."""
        self.socket.send(packet(SHARED, struct.pack("=Q", key)))

    def use(self, device):
        """Say that the process works on another GPU, too."""
        self.socket.send(packet(USES, device))

    def refusal(self, data):
        """Send something invalid; return code and reason of the refusal, the last packet."""
        self.socket.send(data)
        kind, body, _ = self.receive()
        assert kind == REFUSED, kind
        assert self.receive()[0] == 0
        code, _, reason = struct.unpack(f"=II{len(body) - 8}s", body)
        return code, reason.rstrip(b"\0").decode()

    def word(self, offset):
        return struct.unpack_from("=I", self.command, offset)[0]

    @property
    def is_held(self):
        return bool(self.word(GATE_OFFSET) & 1)

    @property
    def honours_presence(self):
        return bool(self.word(FLAGS_OFFSET) & FLAG_HONOUR_PRESENCE)

    @property
    def presence_mask(self):
        return struct.unpack_from("=Q", self.command, MASK_OFFSET)[0]

    def work(self, *, busy, waiting=False):
        """Claim work on the GPU, or a thread that waits at the gate."""
        struct.pack_into("=QQQII", self.state, SLOTS_OFFSET, int(busy), 0, 7, 0, 1)
        struct.pack_into("=II", self.state, WAITS_OFFSET, int(waiting), int(waiting))

    def record(self, kind, *, stream=1, object=0, low=0, context=1, duration_ns=0):
        """Write a telemetry record of thread 5 into the first ring; ticks are nanoseconds."""
        struct.pack_into("=QQQ", self.state, TICKS_OFFSET, 1 << 32, 0, 0)
        head, _ = struct.unpack_from("=QI", self.state, RING_OFFSET)
        at = RINGS_OFFSET + head % RING_RECORDS * RECORD.size
        value = context << 32 | low
        now_ns = time.monotonic_ns()
        RECORD.pack_into(
            self.state, at, now_ns, kind, 0, 0, 5, stream, object, 0, 1, 32, duration_ns, value
        )
        struct.pack_into("=QI", self.state, RING_OFFSET, head + 1, 5)

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--job", type=int, default=0)
    parser.add_argument("--class", type=int, default=NORMAL, dest="job_class")
    parser.add_argument("--group", default="")
    options = parser.parse_args()
    if options.uid is not None:
        os.setgroups([])
        os.setgid(options.uid)
        os.setuid(options.uid)
    shim = Shim(options.socket).attach(
        job_id=options.job, job_class=options.job_class, group=options.group
    )
    seen = {"job_id": shim.job_id, "process_id": shim.process_id}
    print(json.dumps(seen), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

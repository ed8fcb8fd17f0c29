"""Packets as a shim would send them, packed by hand according to csrc/core/wire.h."""

import struct

MAGIC = 0x4D444E54
HELLO, WELCOME, MAPPED, PRESENCE, PRESENCE_GONE, REFUSED, REGISTER, REGISTERED, SHARED, USES = (
    range(1, 11)
)


def header(kind: int, size: int, *, magic: int = MAGIC, version: int = 1) -> bytes:
    return struct.pack("<IHHII", magic, version, kind, size, 0)


def request(*, name: bytes = b"train-7", group: bytes = b"", job_class: int = 3) -> bytes:
    return struct.pack(
        "<IIQQQII64s64s", job_class, 50, 1 << 30, 1 << 20, 10_000_000, 1, 0, name, group
    )


def hello(*, device_uuids: tuple[bytes, ...] = (bytes(range(16)),), body: bytes = b"") -> bytes:
    numbers = struct.pack("<IIIIQ", 1, 1, 0x000102, 1, 42)
    devices = struct.pack("<II", len(device_uuids), 0) + b"".join(device_uuids).ljust(256, b"\0")
    content = numbers + (body or request()) + devices
    return header(HELLO, 16 + len(content)) + content


def register(*, command: bytes = b"python train.py") -> bytes:
    content = request() + command.ljust(256, b"\0")
    return header(REGISTER, 16 + len(content)) + content


def shared(key: int) -> bytes:
    return header(SHARED, 24) + struct.pack("<Q", key)


def uses(device_uuid: bytes) -> bytes:
    return header(USES, 32) + device_uuid


def mapped() -> bytes:
    return header(MAPPED, 16)

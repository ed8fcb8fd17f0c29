"""REGISTER: how `tandem run` announces a job to a daemon before the job has a process.

The structs are those of csrc/core/wire.h, packed by hand: the base install has neither the native
module nor gRPC, and this code runs at every start of a job. A test compares both definitions.
"""

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tandem import _peer
from tandem.errors import UnavailableError

MAGIC = 0x4D444E54
PROTOCOL_VERSION = 1
NAME_BYTES = 64
COMMAND_BYTES = 256
ENVIRONMENT_BYTES = 512
MAX_MESSAGE_BYTES = 4096

TYPE_REFUSED = 6
TYPE_REGISTER = 7
TYPE_REGISTERED = 8

REFUSED_IDENTITY, REFUSED_NO_ROOM, REFUSED_UNFIT, REFUSED_NOT_YET = 3, 4, 7, 8
FLAG_NO_WAIT, FLAG_ASKS_AGAIN, FLAG_ONLY_ASKS = 1, 2, 4

SECOND_NS = 1_000_000_000
MAX_WAIT_NS = (2**16 - 1) * SECOND_NS
NEVER_IDLE_NS = 100 * 365 * 86_400 * SECOND_NS  # the daemon takes this value as "never"

CLASSES = {"latency": 1, "normal": 2, "batch": 3}
ISOLATIONS = {"time": 1, "mps": 2, "mps+green": 3, "mig": 4}

HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct(f"=IIQQQIBBH{NAME_BYTES}s{NAME_BYTES}s")
PROMISE = struct.Struct("=QQ")
SPACE = struct.Struct(f"=II{NAME_BYTES}s")  # SMs, isolation, GPU
FLAGS = struct.Struct("=II")  # flags, idle seconds
REGISTERED = struct.Struct("=QI12x")
REFUSED = struct.Struct("=II")
REASON_BYTES = 160  # the minimum, since older daemons send less
_TIMEVAL = struct.Struct("@ll")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks for; None means "not said" and leaves the choice to the daemon."""

    priority: str | None = None  # a key of CLASSES
    memory_bytes: int | None = None
    memory_min_bytes: int | None = None
    sm_percent: int | None = None
    slo_p99_ns: int | None = None
    preemptible: bool | None = None
    swappable: bool | None = None
    checkpoint: bool = False  # instead of swappable
    name: str = ""
    group: str = ""
    memory_percent: int | None = None  # in place of memory_bytes
    wait_memory_ns: int | None = None  # at most MAX_WAIT_NS
    idle_release_ns: int | None = None  # at most NEVER_IDLE_NS, which means never
    # What the job holds all the time, and what an iteration takes in addition; both or neither.
    persistent_bytes: int | None = None
    ephemeral_bytes: int | None = None
    sm_count: int | None = None  # in place of sm_percent
    isolation: str | None = None  # a key of ISOLATIONS
    no_wait: bool = False  # refuse the job if it would have to queue
    only_asks: bool = False  # register no job, only tell what the answer would be
    asks_again: bool = False  # refuse with REFUSED_NOT_YET while undecided: the caller retries


class UntrustedError(UnavailableError):
    """The daemon in a directory open to everybody belongs to another user."""


class SilentError(UnavailableError):
    """A daemon owns the socket, but hangs or is too busy to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The answer of a daemon that took the job."""

    job_id: int
    priority: str | None = None  # what it got; None: not told, by an older daemon
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for the job
    told: tuple[str, ...] = ()  # which parts of the request have no effect, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The answer of a daemon that did not take the job."""

    code: int
    reason: str


def register(
    path: Path, request: Request, *, command: str, gpu: str = "", timeout_s: float = 1.0
) -> Registered | Refused:
    """Announce a job to the daemon at `path`, which learns the pid and the uid from the kernel.

    Raises:
        UnavailableError: nobody listens, or the answer is not valid.
        SilentError: the daemon does not answer within the timeout.
        UntrustedError: the socket is in /tmp and belongs to another user.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            set_timeout(connection, timeout_s)
            connection.connect(str(path))
            _check_owner(path, _peer.uid_of(connection))
            answer = _exchange(connection, encode_register(request, command=command, gpu=gpu))
        except BlockingIOError as exc:
            raise SilentError(
                f"no answer from the daemon on {path} within {timeout_s:g} s"
            ) from exc
        except OSError as exc:
            raise UnavailableError(f"{path}: {exc.strerror or exc}") from exc
    return decode_answer(answer)


def _exchange(connection: socket.socket, packet: bytes) -> bytes:
    # A daemon that takes no more processes of a user says so and hangs up before it reads anything:
    # its answer can be read after the error.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.send(packet)
    with suppress(ConnectionResetError):
        return connection.recv(MAX_MESSAGE_BYTES)
    return connection.recv(MAX_MESSAGE_BYTES)


def _check_owner(path: Path, uid: int) -> None:
    """Refuse another user's daemon in /tmp, as `is_trustworthy` in shim/job/attach.cpp does."""
    if path.is_relative_to("/tmp") and uid not in (0, os.geteuid()):
        raise UntrustedError(
            f"{path}: the daemon belongs to uid {uid}, and in /tmp only one's own and root's are "
            "trusted, for anybody can listen there; have it elsewhere, as in /run/tandem"
        )


def encode_register(request: Request, *, command: str, gpu: str = "") -> bytes:
    """Pack one REGISTER packet; `gpu` is the index or UUID if the job is bound to a GPU."""
    yes_or_no = {None: 0, True: 1, False: 2}
    asked = REQUEST.pack(
        CLASSES[request.priority] if request.priority else 0,
        request.sm_percent or 0,
        request.memory_bytes or 0,
        request.memory_min_bytes or 0,
        request.slo_p99_ns or 0,
        yes_or_no[request.preemptible],
        request.memory_percent or 0,
        3 if request.checkpoint else yes_or_no[request.swappable],
        _seconds(min(request.wait_memory_ns or 0, MAX_WAIT_NS)),
        _text(request.name, NAME_BYTES),
        _text(request.group, NAME_BYTES),
    )
    what = _text(command, COMMAND_BYTES).ljust(COMMAND_BYTES, b"\0")
    promise = PROMISE.pack(request.persistent_bytes or 0, request.ephemeral_bytes or 0)
    isolation = ISOLATIONS[request.isolation] if request.isolation else 0
    space = SPACE.pack(request.sm_count or 0, isolation, _text(gpu, NAME_BYTES))
    flags = FLAG_NO_WAIT * request.no_wait | FLAG_ASKS_AGAIN * request.asks_again
    flags |= FLAG_ONLY_ASKS * request.only_asks
    body = asked + what + promise + space
    body += FLAGS.pack(flags, _seconds(request.idle_release_ns or 0))
    size = HEADER.size + len(body)
    return HEADER.pack(MAGIC, PROTOCOL_VERSION, TYPE_REGISTER, size, 0) + body


def decode_answer(packet: bytes) -> Registered | Refused:
    """Unpack the answer to REGISTER, ignoring anything that a newer daemon adds.

    Raises:
        UnavailableError: the packet is not an answer of this protocol.
    """
    if len(packet) < HEADER.size:
        raise UnavailableError("the daemon closed the connection without an answer")
    magic, version, kind, size, _ = HEADER.unpack_from(packet)
    if magic != MAGIC or version != PROTOCOL_VERSION or size != len(packet):
        raise UnavailableError(f"the daemon speaks another protocol (version {version})")
    body = packet[HEADER.size :]
    if kind == TYPE_REGISTERED and len(body) >= REGISTERED.size:
        text = body[REGISTERED.size :]
        lines = _decoded(text[:ENVIRONMENT_BYTES]).splitlines()
        pairs = (line.partition("=") for line in lines)
        job_id, job_class = REGISTERED.unpack_from(body)
        return Registered(
            job_id=job_id,
            priority={number: name for name, number in CLASSES.items()}.get(job_class),
            environment={name: value for name, equals, value in pairs if equals},
            told=tuple(_decoded(text[ENVIRONMENT_BYTES:]).splitlines()),
        )
    if kind == TYPE_REFUSED and len(body) >= REFUSED.size + REASON_BYTES:
        return Refused(code=REFUSED.unpack_from(body)[0], reason=_decoded(body[REFUSED.size :]))
    raise UnavailableError(f"the daemon sent an unexpected answer (type {kind})")


def _decoded(text: bytes) -> str:
    return text.split(b"\0")[0].decode(errors="replace")


def _seconds(duration_ns: int) -> int:
    return -(-duration_ns // SECOND_NS)  # rounded up


def _text(value: str, room_bytes: int) -> bytes:
    # Cut between characters, and leave room for the NUL. File names may not be valid text.
    return value.encode(errors="replace")[: room_bytes - 1].decode(errors="ignore").encode()


def set_timeout(connection: socket.socket, timeout_s: float) -> None:
    """Set kernel timeouts: unlike Python's, they also end a connect() to a full backlog."""
    timeval = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)

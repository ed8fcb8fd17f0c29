"""Recordings: a JSON header line padded to a multiple of 64 bytes, then records up to the end."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tandem.errors import NotFoundError, UsageError
from tandem.trace.records import (
    END,
    RECORD,
    RECORD_BYTES,
    Call,
    DamagedError,
    Decoder,
    Device,
    End,
    Lost,
    Process,
)
from tandem.trace.table import Table, table_of, to_json

FORMAT, VERSION = "tandem-trace", 1
_MAX_HEADER_BYTES = 1 << 20
_LATEST_UNIX_S = 253_402_300_800  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The content of the header line."""

    command: tuple[str, ...]
    started_unix_s: float
    device_times: bool  # launches were timed on the GPU
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The content of a file. Calls are sorted by when they began."""

    header: Header
    calls: Sequence[Call]
    processes: Sequence[Process]
    devices: Sequence[Device]  # different kinds of device that contexts are on, as far as known
    lost: int  # calls that were not recorded
    end: End | None  # None: the recording stops early

    @property
    def is_complete(self) -> bool:
        """Whether the recording was written to its end."""
        return self.end is not None


class FileWriter:
    """Writes a recording to an unbuffered file, so that what `add` got is in the file at once."""

    def __init__(self, stream: BinaryIO, header: Header) -> None:
        self._stream = stream
        self._write(header_line(header))

    def add(self, records: bytes) -> None:
        """Append records."""
        self._write(records)

    def finish(self, *, status: int, lost: int) -> None:
        """Append the end record."""
        self._write(RECORD.pack(0, END, 0, 0, 0, 0, status & 0xFF, 1, 0, 0, 0, lost))

    def _write(self, data: bytes) -> None:
        while data:  # an unbuffered file may accept only a part
            data = data[self._stream.write(data) :]


def header_line(header: Header) -> bytes:
    """Serialize the header; its length is a multiple of a record's."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "record_bytes": RECORD_BYTES,
        "command": list(header.command),
        "started_unix_s": round(header.started_unix_s, 6),
        "device_times": header.device_times,
        **to_json(header.table),
    }
    line = json.dumps(value, separators=(",", ":")).encode()
    return line + b" " * (-(len(line) + 1) % RECORD_BYTES) + b"\n"


def new_header(command: Sequence[str], *, device_times: bool, table: Table) -> Header:
    """Make the header of a recording that begins now."""
    return Header(
        command=tuple(command),
        started_unix_s=time.time(),
        device_times=device_times,
        table=table,
    )


def read(path: Path) -> Recording:
    """Read a recording.

    Raises:
        NotFoundError: the file does not exist.
        UsageError: it is of another version, or damaged; the text says where.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as exc:
        raise NotFoundError(f"there is no recording '{path}'") from exc
    except OSError as exc:
        raise UsageError(f"cannot read '{path}': {exc.strerror}") from exc
    try:
        return parse(data)
    except DamagedError as exc:
        raise UsageError(
            f"'{path}' is damaged: record {exc.record} {exc}; record it again"
        ) from exc
    except ValueError as exc:
        raise UsageError(f"'{path}' {exc}") from exc


def parse(data: bytes) -> Recording:
    """Parse the bytes of a recording.

    Raises:
        DamagedError: a record that is not possible.
        ValueError: not a recording, or of another version; the text is to follow the file's name.
    """
    header, body = _split(data)
    decoder = Decoder(header.table)
    calls: list[Call] = []
    processes: dict[tuple[int, str], Process] = {}
    devices: dict[Device, None] = {}
    lost, end = 0, None
    for item in _to_end(decoder, body):
        match item:
            case Call():
                calls.append(item)
            case Process():
                processes[item.pid, item.name] = item  # the last counts: the clock is known by then
                if item.device:
                    devices[item.device] = None
            case Lost(count=count):
                lost += count
            case End():
                end = item
    calls.sort(key=lambda call: call.number)
    return Recording(
        header=header,
        calls=calls,
        processes=list(processes.values()),
        devices=list(devices),
        lost=max(lost, end.lost if end else 0),
        end=end,
    )


def _to_end(decoder: Decoder, body: bytes) -> Iterator[Call | Process | Lost | End]:
    for item in decoder.feed(body):
        yield item
        if isinstance(item, End):
            return


def _split(data: bytes) -> tuple[Header, bytes]:
    end = data.find(b"\n", 0, _MAX_HEADER_BYTES)
    if end < 0:
        msg = "is not a recording of `tandem trace calls`: it has no header line"
        raise ValueError(msg)
    try:
        value = json.loads(data[:end])
    except (ValueError, RecursionError) as exc:
        msg = "is not a recording of `tandem trace calls`: its first line is not JSON"
        raise ValueError(msg) from exc
    return _header(value), data[end + 1 :]


def _header(value: object) -> Header:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        msg = "is not a recording of `tandem trace calls`: its header does not say so"
        raise ValueError(msg)
    version, record_bytes = value.get("version"), value.get("record_bytes")
    if version != VERSION or record_bytes != RECORD_BYTES:
        msg = (
            f"is a recording of version {version!r} with records of {record_bytes!r} bytes; this "
            f"tandem reads version {VERSION} with {RECORD_BYTES}: use the tandem that recorded it"
        )
        raise ValueError(msg)
    command, started = value.get("command"), value.get("started_unix_s")
    if (
        not isinstance(command, list)
        or not isinstance(started, int | float)
        or not 0 <= started < _LATEST_UNIX_S
    ):
        msg = "has a header without the command or the time"
        raise ValueError(msg)
    return Header(
        command=tuple(str(word) for word in command),
        started_unix_s=float(started),
        device_times=value.get("device_times") is True,
        table=table_of(value),
    )

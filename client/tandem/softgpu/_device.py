"""The device process of a directory: its settings before and after start, and its early end."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem import softgpu
from tandem.errors import TandemError, UnavailableError, UsageError
from tandem.softgpu._query import device_status

_PREFIX = "tandem-softgpu: "
_CHECK_LIMIT_S = 10.0
_END_LIMIT_S = 2.0
_ROUND_MS = 10
_PEER = struct.Struct("iII")  # pid, uid, gid of SO_PEERCRED


def read_settings(flags: Mapping[str, str], env: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a device process would start with; `flags` take precedence over `env`.

    Raises:
        UsageError: a wrong value; the text names its flag or variable, and the allowed values.
        UnavailableError: the device program cannot be executed.
    """
    program = env.get("TANDEM_SOFTGPU_BIN") or str(softgpu.DEVICE_PROGRAM)
    given = [word for flag in flags.items() for word in flag]
    folder = [] if "--dir" in flags else ["--dir", str(softgpu.runtime_folder(env))]
    own = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [program, "--check", *folder, *given],
            env=own,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHECK_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise UnavailableError(f"the device program '{program}' cannot be executed: {exc}") from exc
    if done.returncode:
        first = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise UsageError(first.removeprefix(_PREFIX))
    settings: dict[str, Any] = json.loads(done.stdout)
    return settings


def running_settings(folder: Path) -> dict[str, Any] | None:
    """The settings that the device process in `folder` was started with; None if none runs."""
    try:
        device_status(folder)
        settings = json.loads((folder / "softgpu.json").read_bytes())
    except (TandemError, OSError, ValueError):
        return None
    return settings if isinstance(settings, dict) else None


def end_idle(folder: Path) -> bool:
    """End the device process in `folder` if it is only waiting for its next client.

    Returns:
        Whether it has ended; False if it has clients or belongs to another user.
    """
    try:
        process = os.pidfd_open(pid_of(folder))
    except OSError:
        return False
    deadline_s = time.monotonic() + _END_LIMIT_S
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        while time.monotonic() < deadline_s:
            if _has_clients(folder):
                return False
            # Not SIGTERM: a client that connects at this moment must keep its device.
            signal.pidfd_send_signal(process, signal.SIGUSR1)
            if poll.poll(_ROUND_MS):
                return True
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(process)
    return False


def _has_clients(folder: Path) -> bool:
    try:
        clients = json.loads(device_status(folder))["clients"]
    except UnavailableError:
        return False  # it is ending right now
    return any(client["role"] != "query" for client in clients)


def pid_of(folder: Path) -> int:
    """The pid of the device process that listens in `folder`.

    Raises:
        OSError: there is none.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(folder / "softgpu.sock"))
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid: int = _PEER.unpack(peer)[0]
        return pid

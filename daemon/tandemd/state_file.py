"""Where the daemon keeps its state across restarts."""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

FILE = "state.db"
AUTO, NOWHERE = "auto", "none"


def machine_name(machine_id_file: Path = Path("/etc/machine-id")) -> str:
    """Name this machine, unlike others that share its home directories; the same after a reboot.

    The name is a keyed hash, because the id itself must not be shown to others (machine-id(5)), or
    the host name if the machine has no id.
    """
    try:
        said = machine_id_file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        said = ""
    if not re.fullmatch("[0-9a-f]{32}", said):
        return socket.gethostname()
    return hmac.digest(bytes.fromhex(said), b"state of tandemd", "sha256").hex()[:16]


def state_path(
    said: str, environ: Mapping[str, str], *, uid: int, own_runtime_dir: Path | None, machine: str
) -> Path | None:
    """Return the path of the state file of a daemon of this uid; None: no file.

    Args:
        said: `daemon.state`.
        environ: the daemon's.
        uid: the daemon's.
        own_runtime_dir: its runtime directory, if one was named: such a daemon is separate from
            others of its user, also in what it remembers.
        machine: its name. Homes may be shared by several machines: each machine has a file of its
            own, because jobs belong to one machine, and SQLite's write-ahead log must stay on one
            machine, too (sqlite.org/wal.html).
    """
    if said == NOWHERE:
        return None
    if said != AUTO:
        return Path(said)
    of_machine = f"state-{machine}.db"
    if named := environ.get("STATE_DIRECTORY", "").split(":")[0]:  # set by systemd
        # A user unit's directory is in the home.
        return Path(named) / (FILE if uid == 0 else of_machine)
    if own_runtime_dir is not None:
        return own_runtime_dir / FILE
    if uid == 0:
        return Path("/var/lib/tandem") / FILE
    home = environ.get("HOME", "")
    folder = environ.get("XDG_STATE_HOME", "") or (f"{home}/.local/state" if home else "")
    return Path(folder) / "tandem" / of_machine if folder else None


def make_usual_place(said: str, path: Path | None) -> None:
    """Create the directories above the file's own, which a home may lack; creates no others.

    If that fails, opening the file reports it.
    """
    if said == AUTO and path is not None:
        with suppress(OSError):
            path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

"""Where the daemon keeps what is to outlive it."""

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
    """Unlike that of another machine with the same home directories; the same after a reboot.

    A keyed hash, for the id itself is not to be shown to others (machine-id(5)); the host name of a
    machine that has none.
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
    """Where the state of a daemon of this uid is; None: nowhere.

    Args:
        said: `daemon.state`.
        environ: the daemon's.
        uid: the daemon's.
        own_runtime_dir: its runtime directory, if that was named: such a daemon is apart from
            others of its user, in what it remembers, too.
        machine: its name. Homes may be on several machines at once: each has a file of its own,
            for jobs are of one machine, and so has SQLite's log to be (sqlite.org/wal.html).
    """
    if said == NOWHERE:
        return None
    if said != AUTO:
        return Path(said)
    of_machine = f"state-{machine}.db"
    if named := environ.get("STATE_DIRECTORY", "").split(":")[0]:  # systemd's
        return Path(named) / (FILE if uid == 0 else of_machine)  # a user's is in the home
    if own_runtime_dir is not None:
        return own_runtime_dir / FILE
    if uid == 0:
        return Path("/var/lib/tandem") / FILE
    home = environ.get("HOME", "")
    folder = environ.get("XDG_STATE_HOME", "") or (f"{home}/.local/state" if home else "")
    return Path(folder) / "tandem" / of_machine if folder else None


def make_usual_place(said: str, path: Path | None) -> None:
    """The directories above that of the file, which a home may lack; no others are made.

    Who cannot make them is told so when the file is opened.
    """
    if said == AUTO and path is not None:
        with suppress(OSError):
            path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

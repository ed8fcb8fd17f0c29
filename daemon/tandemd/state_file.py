"""Where the daemon keeps what is to outlive it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = "state.db"
AUTO, NOWHERE = "auto", "none"


def state_path(
    said: str, environ: Mapping[str, str], *, uid: int, own_runtime_dir: Path | None
) -> Path | None:
    """Where the state of a daemon of this uid is; None: nowhere.

    Args:
        said: `daemon.state`.
        environ: the daemon's.
        uid: the daemon's.
        own_runtime_dir: its runtime directory, if that was named: such a daemon is apart from
            others of its user, in what it remembers, too.
    """
    if said == NOWHERE:
        return None
    if said != AUTO:
        return Path(said)
    if named := environ.get("STATE_DIRECTORY", "").split(":")[0]:  # systemd's
        return Path(named) / FILE
    if own_runtime_dir is not None:
        return own_runtime_dir / FILE
    if uid == 0:
        return Path("/var/lib/tandem") / FILE
    home = environ.get("HOME", "")
    folder = environ.get("XDG_STATE_HOME", "") or (f"{home}/.local/state" if home else "")
    return Path(folder) / "tandem" / FILE if folder else None

"""What a container gets from this machine so that its programs are jobs, whatever the engine.

The library comes by /etc/ld.so.preload and not by LD_PRELOAD. So an image that sets LD_PRELOAD
keeps its value, and musl's loader, which could not load our library, never tries: it does not read
that file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tandem import _environment, _paths
from tandem.errors import StateError

# client/tandem/ld.so.preload, mounted last, contains this path.
LIBRARY = "/opt/tandem/lib/libtandem.so"
PRELOAD = Path(__file__).absolute().parent / "ld.so.preload"


class Mount(NamedTuple):
    """A file or directory of the host, mounted read-only into the container."""

    outside: str
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What every container gets."""

    variables: Mapping[str, str]  # that locate the daemon
    mounts: tuple[Mount, ...]


def parts(environ: Mapping[str, str], *, uid: int, files: Path | None = None) -> Parts:
    """The parts for jobs of the daemon that `environ` leads to.

    Args:
        environ: may name the daemon's socket or directory.
        uid: the user who looks for the daemon.
        files: the folder with the library and ld.so.preload, by its path on the host; None: where
            they are installed.

    Raises:
        StateError: there is no usable library to preload, or the directory of the daemon's sockets
            has a path that cannot exist in a container.
    """
    library, preload = (files / file.name if files else file for file in (_paths.SHIM, PRELOAD))
    for file in (library, preload):
        _environment.check_installed(file)
    said = _paths.to_be_named(environ, uid=uid)
    place = _place(said)
    return Parts(
        variables=said if "TANDEM_SOCKET" in said else {_paths.VARIABLE: place},
        mounts=(
            Mount(str(library), LIBRARY),
            Mount(str(preload), "/etc/ld.so.preload"),
            Mount(place, place),  # read-only: sockets accept connections, but cannot be removed
        ),
    )


def _place(said: Mapping[str, str]) -> str:
    """The directory of the daemon's sockets, with the same path outside and inside."""
    socket = said.get("TANDEM_SOCKET")
    place = str(Path(socket).parent) if socket else said.get(_paths.VARIABLE, str(_paths.SYSTEM))
    if not Path(place).is_absolute() or Path(place) == Path("/"):
        raise StateError(
            f"{place!r} cannot be mounted; set TANDEM_RUNTIME_DIR to a directory such as "
            "/run/tandem"
        )
    return place

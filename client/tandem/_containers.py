"""What a container gets of this machine so that its programs are jobs, whatever engine starts it.

The library comes by /etc/ld.so.preload and not by LD_PRELOAD: an image that sets that variable
keeps it, and the loader of musl, which could not load ours, does not read that file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tandem import _environment, _paths
from tandem.errors import StateError

# client/tandem/ld.so.preload, mounted as the last, names the one before it.
LIBRARY = "/opt/tandem/lib/libtandem.so"
PRELOAD = Path(__file__).absolute().parent / "ld.so.preload"


class Mount(NamedTuple):
    """A file or directory of the machine that the container sees and cannot change."""

    outside: str
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all of them get."""

    variables: Mapping[str, str]  # that lead to the daemon
    mounts: tuple[Mount, ...]


def parts(environ: Mapping[str, str], *, uid: int, files: Path | None = None) -> Parts:
    """For jobs of the daemon that is found from here.

    Args:
        environ: what may say where that is.
        uid: who looks for it.
        files: the folder that has the two files of ours, by the path that it has on the machine;
            None: they are taken from where they are installed.

    Raises:
        StateError: there is no usable library to preload, or the directory of the daemon's sockets
            has a path that no container can have.
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
            Mount(place, place),  # sockets can be connected to, and not be removed
        ),
    )


def _place(said: Mapping[str, str]) -> str:
    """The directory of the daemon's sockets, outside as inside."""
    socket = said.get("TANDEM_SOCKET")
    place = str(Path(socket).parent) if socket else said.get(_paths.VARIABLE, str(_paths.SYSTEM))
    if not Path(place).is_absolute() or Path(place) == Path("/"):
        raise StateError(f"{place!r} cannot be mounted: say TANDEM_RUNTIME_DIR=/run/tandem or such")
    return place

"""How container engines are told of jobs that share the GPU: a specification of CDI.

The Container Device Interface (CNCF, `tags.cncf.io/container-device-interface`, version 0.3.0) says
what an engine changes in a container that asks for a device: here the library that is preloaded,
the sockets of the daemon, and what is asked for. Podman, Docker, containerd and CRI-O read it.

The library comes by /etc/ld.so.preload and not by LD_PRELOAD: an image that sets that variable
keeps it, and the loader of musl, which could not load ours, does not read that file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tandem import _attach, _environment, _paths
from tandem._attach import Request
from tandem.errors import StateError

KIND = "tandem.dev/gpu"
VERSION = "0.3.0"  # the oldest that has all of this; engines refuse what is newer than they are
ANY = "any"  # the device that asks for no priority of its own

# client/tandem/ld.so.preload, mounted as the last, names the one before it.
LIBRARY = "/opt/tandem/lib/libtandem.so"
PRELOAD = Path(__file__).absolute().parent / "ld.so.preload"


def specification(
    request: Request, environ: Mapping[str, str], *, uid: int, return_memory: bool = False
) -> dict[str, object]:
    """The devices: one for each class of priority, and one that asks for none.

    Raises:
        StateError: there is no usable library to preload, or the directory of the daemon's sockets
            has a path that no container can have.
        UsageError: what is asked for contradicts itself.
    """
    _environment.check_request(request)
    for file in (_paths.SHIM, PRELOAD):
        _environment.check_installed(file)
    said = _environment.returning({}) if return_memory else {}
    said |= _paths.to_be_named(environ, uid=uid)
    place = _place(said)
    said |= {} if "TANDEM_SOCKET" in said else {_paths.VARIABLE: place}
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": list(_devices(request, said)),
        "containerEdits": {
            "mounts": [
                _mount(str(_paths.SHIM), LIBRARY),
                _mount(str(PRELOAD), "/etc/ld.so.preload"),
                # Read-only: sockets can be connected to, and not be removed.
                _mount(place, place),
            ]
        },
    }


def _devices(request: Request, said: Mapping[str, str]) -> Iterator[dict[str, object]]:
    for name in (ANY, *_attach.CLASSES):
        asked = request if name == ANY else replace(request, priority=name)
        variables = {**_environment.request_environment(asked), **said}
        edits = {"env": [f"{variable}={value}" for variable, value in variables.items()]}
        yield {"name": name, "containerEdits": edits}


def _place(said: Mapping[str, str]) -> str:
    """The directory of the daemon's sockets, outside as inside."""
    socket = said.get("TANDEM_SOCKET")
    place = str(Path(socket).parent) if socket else said.get(_paths.VARIABLE, str(_paths.SYSTEM))
    if not Path(place).is_absolute() or Path(place) == Path("/"):
        raise StateError(f"{place!r} cannot be mounted: say TANDEM_RUNTIME_DIR=/run/tandem or such")
    return place


def _mount(outside: str, inside: str) -> dict[str, object]:
    options = ["ro", "nosuid", "nodev", "bind"]
    return {"hostPath": outside, "containerPath": inside, "options": options}

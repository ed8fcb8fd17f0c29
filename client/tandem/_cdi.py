"""How container engines learn of jobs that share the GPU: a CDI specification.

The Container Device Interface (CNCF, `tags.cncf.io/container-device-interface`, version 0.3.0) says
what an engine changes in a container that requests a device: here the preloaded library, the
daemon's sockets, and the variables of the request. Podman, Docker, containerd and CRI-O read it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tandem import _attach, _containers, _environment
from tandem._attach import Request
from tandem._containers import Mount

KIND = "tandem.dev/gpu"
VERSION = "0.3.0"  # the oldest with all we need; engines refuse versions newer than they know
ANY = "any"  # the device that requests no priority


def specification(
    request: Request, environ: Mapping[str, str], *, uid: int, return_memory: bool = False
) -> dict[str, object]:
    """The specification's devices: one for each priority class, and one without a priority.

    Raises:
        StateError: there is no usable library to preload, or the directory of the daemon's sockets
            has a path that cannot exist in a container.
        UsageError: the request contradicts itself.
    """
    _environment.check_request(request)
    parts = _containers.parts(environ, uid=uid)
    said = _environment.returning({}) if return_memory else {}
    said |= parts.variables
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": list(_devices(request, said)),
        "containerEdits": {"mounts": list(map(_mount, parts.mounts))},
    }


def _devices(request: Request, said: Mapping[str, str]) -> Iterator[dict[str, object]]:
    for name in (ANY, *_attach.CLASSES):
        asked = request if name == ANY else replace(request, priority=name)
        variables = {**_environment.request_environment(asked), **said}
        edits = {"env": [f"{variable}={value}" for variable, value in variables.items()]}
        yield {"name": name, "containerEdits": edits}


def _mount(mount: Mount) -> dict[str, object]:
    options = ["ro", "nosuid", "nodev", "bind"]
    return {"hostPath": mount.outside, "containerPath": mount.inside, "options": options}

"""What a container with slices is started with."""

import filecmp
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tandem import _cdi, _containers, _environment, _paths
from tandem._attach import Request
from tandem._containers import Parts
from tandem._wire import deviceplugin_pb2 as pb
from tandem.kubernetes.inventory import Grant

# Both are NVIDIA's: its container runtime reads the one, `nvidia-ctk cdi generate` writes the
# other.
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NVIDIA_KIND = "nvidia.com/gpu"


def response(grants: Sequence[Grant], parts: Parts) -> pb.ContainerAllocateResponse:
    """Variables and mounts, from which NVIDIA's container runtime learns the GPUs.

    CUDA_VISIBLE_DEVICES is not set: the container sees no other GPUs, and programs that expect
    numbers in it fail on UUIDs.
    """
    visible = {VISIBLE: ",".join(grant.gpu.uuid for grant in grants)}
    return pb.ContainerAllocateResponse(
        envs={**_asked(grants), **parts.variables, **visible},
        mounts=[
            pb.Mount(host_path=mount.outside, container_path=mount.inside, read_only=True)
            for mount in parts.mounts
        ],
    )


def cdi_response(grants: Sequence[Grant]) -> pb.ContainerAllocateResponse:
    """CDI devices: NVIDIA's for the GPUs, and that of `tandem cdi generate`."""
    names = [f"{_cdi.KIND}={_cdi.ANY}", *(f"{NVIDIA_KIND}={grant.gpu.uuid}" for grant in grants)]
    return pb.ContainerAllocateResponse(
        envs=_asked(grants), cdi_devices=[pb.CDIDevice(name=name) for name in names]
    )


def lay_out(folder: Path) -> None:
    """Copy our files for containers into `folder`, as they are installed here.

    Running containers keep the files they were started with.

    Raises:
        StateError: they are not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source in (_paths.SHIM, _containers.PRELOAD):
        _environment.check_installed(source)
        target = folder / source.name
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            continue
        new = target.with_name(f"{target.name}.new")
        shutil.copyfile(source, new)
        new.chmod(0o644)
        os.replace(new, target)


def _asked(grants: Sequence[Grant]) -> dict[str, str]:
    # The limit holds on each GPU, so with different shares the smallest one counts.
    least_bytes = min(grant.memory_bytes for grant in grants)
    return _environment.request_environment(Request(memory_bytes=least_bytes))

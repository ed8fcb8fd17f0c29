"""Answers the kubelet's calls. For one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import grpc

from tandem._wire import deviceplugin_pb2 as pb
from tandem._wire import deviceplugin_pb2_grpc as services
from tandem.errors import NotFoundError
from tandem.kubernetes.inventory import Device, Grant, Inventory, Say
from tandem.kubernetes.slices import preferred
from tandem.units import format_bytes

OPTIONS = pb.DevicePluginOptions(get_preferred_allocation_available=True)

if TYPE_CHECKING:  # grpcio has no such generics at run time
    _Request = TypeVar("_Request")
    _Answer = TypeVar("_Answer")
    Context = grpc.aio.ServicerContext[_Request, _Answer]

Respond = Callable[[Sequence[Grant]], pb.ContainerAllocateResponse]


class DevicePlugin(services.DevicePluginServicer):
    """v1beta1.DevicePlugin."""

    def __init__(self, inventory: Inventory, respond: Respond, *, say: Say) -> None:
        """`respond` makes what a container is started with."""
        self._inventory = inventory
        self._respond = respond
        self._say = say

    async def GetDevicePluginOptions(  # noqa: N802 - gRPC's names
        self, request: pb.Empty, context: Context[pb.Empty, pb.DevicePluginOptions]
    ) -> pb.DevicePluginOptions:
        """Say which optional calls are supported."""
        return OPTIONS

    async def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: Context[pb.Empty, pb.ListAndWatchResponse]
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Send all slices, now and after each change."""
        async for devices in self._inventory.lists():
            yield pb.ListAndWatchResponse(devices=map(_message, devices))

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: pb.PreferredAllocationRequest,
        context: Context[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse],
    ) -> pb.PreferredAllocationResponse:
        """Choose slices that belong together, for each container."""
        chosen = (
            preferred(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            for one in request.container_requests
        )
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=slices) for slices in chosen
            ]
        )

    async def Allocate(  # noqa: N802
        self,
        request: pb.AllocateRequest,
        context: Context[pb.AllocateRequest, pb.AllocateResponse],
    ) -> pb.AllocateResponse:
        """Say what each container is started with; NOT_FOUND ends the pod."""
        try:
            granted = [
                self._inventory.grants(one.devices_ids) for one in request.container_requests
            ]
        except NotFoundError as exc:
            self._say(f"a pod gets nothing: {exc}")
            await context.abort(grpc.StatusCode.NOT_FOUND, str(exc))
        for grants in granted:
            self._say(f"a container gets {' and '.join(map(_in_words, grants))}")
        return pb.AllocateResponse(container_responses=map(self._respond, granted))

    async def PreStartContainer(  # noqa: N802
        self,
        request: pb.PreStartContainerRequest,
        context: Context[pb.PreStartContainerRequest, pb.PreStartContainerResponse],
    ) -> pb.PreStartContainerResponse:
        """Do nothing."""
        return pb.PreStartContainerResponse()


def _message(device: Device) -> pb.Device:
    return pb.Device(ID=device.name, health="Healthy" if device.is_healthy else "Unhealthy")


def _in_words(grant: Grant) -> str:
    slices = f"{grant.slices} slices" if grant.slices > 1 else "a slice"
    return f"{slices} of gpu {grant.gpu.name}, {format_bytes(grant.memory_bytes)}"

"""A kubelet as far as a device plugin can tell: it registers plugins, and calls them.

What it does is what Kubernetes' own documentation of device plugins has: one that starts empties
its folder, and dials who registers.
"""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from tandem._wire import deviceplugin_pb2 as pb
from tandem._wire import deviceplugin_pb2_grpc as services

DEADLINE_S = 20


class Kubelet(services.RegistrationServicer):
    """Serves `kubelet.sock` in a folder from `start` to `stop`."""

    def __init__(self, folder):
        self.folder = folder
        self.refusal = ""  # what it answers to who registers; empty: it takes them
        self.refused = threading.Event()
        self._requests = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(2)

    def start(self):
        for left in self.folder.iterdir():
            left.unlink(missing_ok=True)  # a plugin that sees the end takes its own away
        self._server = grpc.server(self._pool)
        services.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self):
        self._server.stop(DEADLINE_S).wait()  # who has registered hears so

    def close(self):
        self.stop()
        self._pool.shutdown()

    def Register(self, request, context):  # noqa: N802 - gRPC's name
        if refusal := self.refusal:
            self.refused.set()
            context.abort(grpc.StatusCode.UNIMPLEMENTED, refusal)
        self._requests.put(request)
        return pb.Empty()

    def registered(self):
        """The next plugin that registers."""
        return Plugin(self.folder, self._requests.get(timeout=DEADLINE_S))


class Plugin:
    """One that has registered, dialled."""

    def __init__(self, folder, request):
        self.request = request
        self._channel = grpc.insecure_channel(f"unix:{folder / request.endpoint}")
        self._stub = services.DevicePluginStub(self._channel)
        self.options = self._stub.GetDevicePluginOptions(pb.Empty(), timeout=DEADLINE_S)
        self._lists = self._stub.ListAndWatch(pb.Empty(), timeout=DEADLINE_S)

    def devices(self):
        """The next list that it sends: names, and whether they are healthy."""
        return {device.ID: device.health == "Healthy" for device in next(self._lists).devices}

    def prefer(self, available, size, required=()):
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[one])
        answer = self._stub.GetPreferredAllocation(request, timeout=DEADLINE_S)
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, *containers):
        """What each container is started with that gets so many slices."""
        asked = [pb.ContainerAllocateRequest(devices_ids=slices) for slices in containers]
        request = pb.AllocateRequest(container_requests=asked)
        return self._stub.Allocate(request, timeout=DEADLINE_S).container_responses

    def close(self):
        self._channel.close()

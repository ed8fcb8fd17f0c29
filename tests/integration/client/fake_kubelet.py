"""A kubelet as a device plugin sees it: plugins register with it, and it calls them.

It behaves as Kubernetes' documentation of device plugins says: a kubelet that starts empties its
folder, and connects to the plugins that register.
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
        self.refusal = ""  # its answer to a plugin that registers; if empty, it accepts the plugin
        self.refused = threading.Event()
        self._requests = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(2)

    def start(self):
        for left in self.folder.iterdir():
            left.unlink(missing_ok=True)  # a plugin that sees the end removes its own socket
        self._server = grpc.server(self._pool)
        services.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self):
        self._server.stop(DEADLINE_S).wait()  # registered plugins notice

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
        """Return the next plugin that registers."""
        return Plugin(self.folder, self._requests.get(timeout=DEADLINE_S))


class Plugin:
    """A registered plugin, with a connection to it."""

    def __init__(self, folder, request):
        self.request = request
        self._channel = grpc.insecure_channel(f"unix:{folder / request.endpoint}")
        self._stub = services.DevicePluginStub(self._channel)
        self.options = self._stub.GetDevicePluginOptions(pb.Empty(), timeout=DEADLINE_S)
        self._lists = self._stub.ListAndWatch(pb.Empty(), timeout=DEADLINE_S)

    def devices(self):
        """Return the next list that the plugin sends: {name: is it healthy}."""
        return {device.ID: device.health == "Healthy" for device in next(self._lists).devices}

    def prefer(self, available, size, required=()):
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[one])
        answer = self._stub.GetPreferredAllocation(request, timeout=DEADLINE_S)
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, *containers):
        """Return what each container is started with, given the slices of each."""
        asked = [pb.ContainerAllocateRequest(devices_ids=slices) for slices in containers]
        request = pb.AllocateRequest(container_requests=asked)
        return self._stub.Allocate(request, timeout=DEADLINE_S).container_responses

    def close(self):
        self._channel.close()

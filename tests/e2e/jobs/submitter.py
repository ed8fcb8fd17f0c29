"""In a job on the software GPU: every kind of work that a program can give the GPU."""

import ctypes

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, u32

SIZE = 4096
MANAGED = 2 << 20
CAPTURE = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class Submitter:
    """Holds what the calls need; `calls` has each call by its name."""

    def __init__(self):
        self.gpu = Gpu()
        self.stream = ok(cu.cuStreamCreate(1))
        self.word = self.gpu.word(1)
        self.a, self.b = (ok(cu.cuMemAlloc(SIZE)) for _ in range(2))
        self.managed = ok(cu.cuMemAllocManaged(MANAGED, 1))
        self.host = u32(*range(SIZE // 4))
        self.flag = self.gpu.word(1)
        self.graph = self._captured(lambda: self.launch(self.stream))
        self.executable = ok(cu.cuGraphInstantiate(self.graph, 0))
        descriptor = cu.CUDA_ARRAY_DESCRIPTOR()
        descriptor.Width, descriptor.Height, descriptor.NumChannels = 1024, 0, 1
        descriptor.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
        self.array = ok(cu.cuArrayCreate(descriptor))
        self.calls = self._calls()
        self.free = self._free()
        ok(cu.cuCtxSynchronize())

    def make(self, name):
        """Make one call and wait for what it began."""
        {**self.calls, **self.free}[name]()
        ok(cu.cuCtxSynchronize())

    def launch(self, stream):
        self.gpu.affine(self.word, 2, 1, stream=stream)

    def _captured(self, work):
        ok(cu.cuStreamBeginCapture(self.stream, CAPTURE))
        work()
        return ok(cu.cuStreamEndCapture(self.stream))

    def _launch_ex(self):
        config = cu.CUlaunchConfig()
        for axis in "XYZ":
            setattr(config, f"gridDim{axis}", 1)
            setattr(config, f"blockDim{axis}", 1)
        config.hStream = self.stream
        values = ((self.word, 2, 1), (None, ctypes.c_uint, ctypes.c_uint))
        ok(cu.cuLaunchKernelEx(config, self.gpu.function("affine"), values, 0))

    def _cooperative(self):
        values = ((self.word, 2, 1), (None, ctypes.c_uint, ctypes.c_uint))
        function = self.gpu.function("affine")
        ok(cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, self.stream, values))

    def _box(self, kind):
        box = kind()
        box.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
        box.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        box.srcHost, box.dstDevice = address(self.host), self.a
        box.srcPitch = box.dstPitch = box.WidthInBytes = 64
        box.Height = 4
        if hasattr(box, "Depth"):
            box.srcHeight = box.dstHeight = 4
            box.Depth = 4
        return box

    def _peer_box(self):
        box = self._box(cu.CUDA_MEMCPY3D_PEER)
        box.srcContext = box.dstContext = self.gpu.context
        return box

    def _attributes(self):
        attributes = cu.CUmemcpyAttributes()
        attributes.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        return attributes

    def _batch(self):
        lists = [[cu.CUdeviceptr(int(p))] * 2 for p in (self.a, self.b)]
        attributes = [self._attributes()]
        ok(cu.cuMemcpyBatchAsync(*lists, [64, 192], 2, attributes, [0], 1, self.stream))

    def _place(self):
        place = cu.CUmemLocation()
        place.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        return place

    def _instantiate(self):
        params = cu.CUDA_GRAPH_INSTANTIATE_PARAMS()
        params.flags = cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
        params.hUploadStream = self.stream
        ok(cu.cuGraphInstantiateWithParams(self.graph, params))

    def _calls(self):
        host, a, b, s = address(self.host), self.a, self.b, self.stream
        context = self.gpu.context
        managed = ([self.managed], [MANAGED], 1)
        moved = (*managed, [self._place()], [0], 1, 0, s)
        return {
            "launch": lambda: self.launch(s),
            "launch_legacy": lambda: self.launch(0),
            "launch_per_thread": lambda: self.launch(2),
            "launch_ex": self._launch_ex,
            "launch_cooperative": self._cooperative,
            "launch_graph": lambda: ok(cu.cuGraphLaunch(self.executable, s)),
            "upload_graph": lambda: ok(cu.cuGraphUpload(self.executable, s)),
            "instantiate_graph": self._instantiate,
            "htod": lambda: ok(cu.cuMemcpyHtoD(a, host, SIZE)),
            "htod_async": lambda: ok(cu.cuMemcpyHtoDAsync(a, host, SIZE, s)),
            "dtoh": lambda: ok(cu.cuMemcpyDtoH(host, a, SIZE)),
            "dtoh_async": lambda: ok(cu.cuMemcpyDtoHAsync(host, a, SIZE, s)),
            "dtod": lambda: ok(cu.cuMemcpyDtoD(b, a, SIZE)),
            "dtod_async": lambda: ok(cu.cuMemcpyDtoDAsync(b, a, SIZE, s)),
            "unified": lambda: ok(cu.cuMemcpy(b, a, SIZE)),
            "unified_async": lambda: ok(cu.cuMemcpyAsync(b, a, SIZE, s)),
            "htoa": lambda: ok(cu.cuMemcpyHtoA(self.array, 0, host, 256)),
            "atoh_async": lambda: ok(cu.cuMemcpyAtoHAsync(host, self.array, 0, 256, s)),
            "atod": lambda: ok(cu.cuMemcpyAtoD(a, self.array, 0, 256)),
            "dtoa": lambda: ok(cu.cuMemcpyDtoA(self.array, 0, a, 256)),
            "atoa": lambda: ok(cu.cuMemcpyAtoA(self.array, 0, self.array, 512, 256)),
            "peer": lambda: ok(cu.cuMemcpyPeer(b, context, a, context, SIZE)),
            "peer_async": lambda: ok(cu.cuMemcpyPeerAsync(b, context, a, context, SIZE, s)),
            "box2": lambda: ok(cu.cuMemcpy2D(self._box(cu.CUDA_MEMCPY2D))),
            "box2_async": lambda: ok(cu.cuMemcpy2DAsync(self._box(cu.CUDA_MEMCPY2D), s)),
            "box3": lambda: ok(cu.cuMemcpy3D(self._box(cu.CUDA_MEMCPY3D))),
            "box3_async": lambda: ok(cu.cuMemcpy3DAsync(self._box(cu.CUDA_MEMCPY3D), s)),
            "box3_peer": lambda: ok(cu.cuMemcpy3DPeer(self._peer_box())),
            "box3_peer_async": lambda: ok(cu.cuMemcpy3DPeerAsync(self._peer_box(), s)),
            "batch": self._batch,
            "attributes": lambda: ok(
                cu.cuMemcpyWithAttributesAsync(b, a, 64, self._attributes(), s)
            ),
            "prefetch": lambda: ok(
                cu.cuMemPrefetchAsync(self.managed, MANAGED, self._place(), 0, s)
            ),
            "prefetch_batch": lambda: ok(cu.cuMemPrefetchBatchAsync(*moved)),
            "discard_prefetch": lambda: ok(cu.cuMemDiscardAndPrefetchBatchAsync(*moved)),
            "discard": lambda: ok(cu.cuMemDiscardBatchAsync(*managed, 0, s)),
            "set8": lambda: ok(cu.cuMemsetD8(a, 1, SIZE)),
            "set16_async": lambda: ok(cu.cuMemsetD16Async(a, 1, SIZE // 2, s)),
            "set32_box": lambda: ok(cu.cuMemsetD2D32(a, 256, 1, 32, 4)),
            "set8_box_async": lambda: ok(cu.cuMemsetD2D8Async(a, 256, 1, 64, 4, s)),
        }

    # Work in flight may depend on these, so no gate holds them.
    def _free(self):
        s = self.stream
        return {
            "write_value": lambda: ok(cu.cuStreamWriteValue32(s, self.flag, 1, 0)),
            "wait_value": lambda: ok(cu.cuStreamWaitValue32(s, self.flag, 1, 0)),
            "advise": lambda: ok(
                cu.cuMemAdvise(
                    self.managed,
                    MANAGED,
                    cu.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY,
                    self._place(),
                )
            ),
            # Work in a capture is recorded, not submitted.
            "captured_launch": lambda: self._captured(lambda: self.launch(s)),
            "captured_copy": lambda: self._captured(self.calls["dtod_async"]),
            "captured_set": lambda: self._captured(self.calls["set8_box_async"]),
            "captured_graph": lambda: self._captured(self.calls["launch_graph"]),
            "instantiated": lambda: ok(cu.cuGraphInstantiate(self.graph, 0)),
        }

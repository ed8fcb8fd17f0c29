"""Work in a job's own streams whose order and place a test can see."""

import ctypes
import random

from cuda.bindings import driver as cu
from gpu import ok

NON_BLOCKING, BLOCKING = 1, 0


class Work:
    """Wide kernels, and between them steps of a sum that is right only in the right order."""

    def __init__(self, gpu, streams=2, flags=NON_BLOCKING):
        self.gpu = gpu
        self.streams = [ok(cu.cuStreamCreate(flags)) for _ in range(streams)]
        self.words = [gpu.word(1) for _ in self.streams]
        self.expected = [1] * streams
        self.numbers = ok(cu.cuMemAlloc(4))

    def submit(self, times=1):
        """Submit the work without waiting for it."""
        pointers, types = (self.numbers,) * 3, (None, None, None, ctypes.c_int)
        for step in range(times):
            for nth, stream in enumerate(self.streams):
                wide = self.gpu.launch(
                    "vadd", (*pointers, 0), types, stream=stream, grid=1320, block=256
                )
                ok(wide)
                factor, addend = 3 + nth, step + 1
                self.gpu.affine(self.words[nth], factor, addend, stream=stream)
                self.expected[nth] = (self.expected[nth] * factor + addend) % 2**32

    def result(self):
        """Wait; return the words as they are and as they should be."""
        for stream in self.streams:
            ok(cu.cuStreamSynchronize(stream))
        return [self.gpu.read(word)[0] for word in self.words], self.expected

    def is_right(self):
        found, expected = self.result()
        return found == expected


works = {}


def begin(gpu, **how):
    works["work"] = Work(gpu, **how)


def submit(times=1):
    works["work"].submit(times)


def run(times=1):
    """Run the work to its end; tell whether the sum is right."""
    works["work"].submit(times)
    return works["work"].is_right()


def capture():
    """Capture work of the first stream, which had work before, for `replay`."""
    work = works["work"]
    first = work.streams[0]
    work.submit()
    ok(cu.cuStreamBeginCapture(first, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    wide = ((work.numbers,) * 3 + (0,), (None, None, None, ctypes.c_int))
    ok(work.gpu.launch("vadd", *wide, stream=first, grid=1320, block=256))
    work.gpu.affine(work.words[0], 7, 5, stream=first)
    works["graph"] = ok(cu.cuGraphInstantiate(ok(cu.cuStreamEndCapture(first)), 0))


def replay(into=0):
    """Launch the graph of `capture` in a stream, which need not be the one that was captured."""
    work = works["work"]
    ok(cu.cuStreamSynchronize(work.streams[0]))
    ok(cu.cuGraphLaunch(works["graph"], work.streams[into]))
    ok(cu.cuStreamSynchronize(work.streams[into]))
    work.expected[0] = (work.expected[0] * 7 + 5) % 2**32
    return work.is_right()


def meet(sms):
    """Run a cooperative grid that needs `sms` SMs, in the first stream."""
    work = works["work"]
    function, stream = work.gpu.function("count_up"), work.streams[0]
    blocks = sms * ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0))
    ok(cu.cuLaunchCooperativeKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, 0))
    ok(cu.cuStreamSynchronize(stream))


def copied_setting():
    """Copy a setting of one stream to another; tell whether the other has it then."""
    source, target = works["work"].streams
    policy = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    value = cu.CUstreamAttrValue()
    value.syncPolicy = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_BLOCKING_SYNC
    ok(cu.cuStreamSetAttribute(source, policy, value))
    ok(cu.cuStreamCopyAttributes(target, source))
    return ok(cu.cuStreamGetAttribute(target, policy)).syncPolicy == value.syncPolicy


def mixed(gpu, seed, steps=40):
    """Do random work on a word, passed from stream to stream; tell whether the result is right."""
    chance = random.Random(seed)
    streams = works.setdefault(
        "mixed", [ok(cu.cuStreamCreate(flags)) for flags in (NON_BLOCKING,) * 3 + (BLOCKING,)]
    )
    word, expected, at = gpu.word(seed), seed, streams[0]
    event = ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    for step in range(steps):
        factor, addend = chance.choice((3, 5, 7)), step + 1
        what = chance.choice(("stay", "stay", "hand", "capture", "wait", "copy"))
        if what == "hand":
            ok(cu.cuEventRecord(event, at))
            at = chance.choice(streams)
            ok(cu.cuStreamWaitEvent(at, event, 0))
        if what == "wait":
            ok(cu.cuStreamSynchronize(at))
        if what == "copy":
            other = ok(cu.cuMemAllocAsync(4, at))
            ok(cu.cuMemcpyDtoDAsync(other, word, 4, at))
            gpu.affine(word, 0, 0, stream=at)
            ok(cu.cuMemcpyDtoDAsync(word, other, 4, at))
            ok(cu.cuMemFreeAsync(other, at))
        if what == "capture":
            ok(cu.cuStreamBeginCapture(at, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        gpu.affine(word, factor, addend, stream=at, slow=chance.random() < 0.2)
        if what == "capture":
            graph = ok(cu.cuStreamEndCapture(at))
            executable = ok(cu.cuGraphInstantiate(graph, 0))
            ok(cu.cuGraphLaunch(executable, at))
        expected = (expected * factor + addend) % 2**32
    ok(cu.cuStreamSynchronize(at))
    return gpu.read(word)[0] == expected

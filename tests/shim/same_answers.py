"""Programs that print every answer of the driver, to be compared bare and held.

    python same_answers.py < requests.json > answers.json

A request is {words: [function, argument..], env: {..}} and runs in a fork. Its answer is what it
prints: a line for each call, without what differs between runs (handles, addresses, times).
"""

import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import uuid

from cuda.bindings import driver as cu
from gpu import Gpu, ok, outside, u32

NON_BLOCKING = 1
PATIENCE_S = 30
FINE = 1  # CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM


def note(what, answer, *shown):
    status = answer[0] if isinstance(answer, tuple) else answer
    print(what, getattr(status, "name", status).removeprefix("CUDA_"), *shown, flush=True)
    return answer[1] if isinstance(answer, tuple) and len(answer) > 1 else None


def launch(gpu, word, stream):
    values = ((word, 2, 1), (None, ctypes.c_uint, ctypes.c_uint))
    return cu.cuLaunchKernel(gpu.kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, 0)


def try_everything(gpu, word, stream, event, when):
    """Make one call of each kind."""
    host = u32(0)
    at = host.buffer_info()[0]
    note(f"{when}: launch", launch(gpu, word, stream))
    note(f"{when}: launch legacy", launch(gpu, word, 0))
    note(f"{when}: memset", cu.cuMemsetD32Async(word, 1, 1, stream))
    note(f"{when}: record", cu.cuEventRecord(event, stream))
    note(f"{when}: wait", cu.cuStreamWaitEvent(stream, event, 0))
    note(f"{when}: write", cu.cuStreamWriteValue32(stream, word, 1, 0))
    note(f"{when}: allocate", cu.cuMemAlloc(64))
    note(f"{when}: copy", cu.cuMemcpyDtoH(at, word, 4))
    note(f"{when}: stream", cu.cuStreamSynchronize(stream))
    note(f"{when}: query", cu.cuStreamQuery(stream))
    note(f"{when}: event", cu.cuEventSynchronize(event))
    note(f"{when}: context", cu.cuCtxSynchronize())
    note(f"{when}: info", cu.cuMemGetInfo())


def things(gpu):
    gpu.kernel = gpu.function("affine")
    return gpu.word(7), ok(cu.cuStreamCreate(NON_BLOCKING)), ok(cu.cuEventCreate(0))


def faults():
    """After what TANDEM_SOFTGPU_FAULTS does to the second kernel, and after a reset."""
    gpu = Gpu()
    word, stream, event = things(gpu)
    # When an error shows depends on time, and a held program takes more of it. So make it show
    # here.
    note("launch", launch(gpu, word, stream))
    note("launch", launch(gpu, word, stream))
    note("synchronize", cu.cuStreamSynchronize(stream))
    for number in range(2):
        try_everything(gpu, word, stream, event, f"round {number}")
    note("free", cu.cuMemFree(word))
    note("destroy", cu.cuStreamDestroy(stream))
    note("reset", cu.cuDevicePrimaryCtxReset(gpu.device))
    note("again", cu.cuCtxSynchronize())
    note("retain", cu.cuDevicePrimaryCtxRetain(gpu.device))
    note("allocate", cu.cuMemAlloc(64))


def without_a_context():
    gpu = Gpu()
    word, stream, event = things(gpu)
    ok(cu.cuCtxSetCurrent(0))
    try_everything(gpu, word, stream, event, "none")
    note("pop", cu.cuCtxPopCurrent())
    other = threading.Thread(target=try_everything, args=(gpu, word, stream, event, "thread"))
    ok(cu.cuCtxSetCurrent(gpu.context))
    other.start()
    with outside():
        other.join()


def before_init():
    for call in (cu.cuCtxSynchronize, cu.cuMemGetInfo, lambda: cu.cuMemAlloc(4)):
        note("before", call())
    note("launch", cu.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    ok(cu.cuInit(0))
    for call in (cu.cuCtxSynchronize, cu.cuMemGetInfo, lambda: cu.cuMemAlloc(4)):
        note("after", call())


def several_contexts():
    gpu = Gpu()
    word, stream, event = things(gpu)
    second = ok(cu.cuCtxCreate(None, 0, gpu.device))
    other_word, other_stream = ok(cu.cuMemAlloc(4)), ok(cu.cuStreamCreate(NON_BLOCKING))
    other_event = ok(cu.cuEventCreate(0))
    for name, current in (("first", gpu.context), ("second", second)):
        ok(cu.cuCtxPushCurrent(current))
        try_everything(gpu, word, stream, event, f"{name}, all of the first")
        try_everything(gpu, word, other_stream, event, f"{name}, stream of the second")
        try_everything(gpu, other_word, other_stream, other_event, f"{name}, all of the second")
        note("wait across", cu.cuStreamWaitEvent(stream, other_event, 0))
        note("back across", cu.cuStreamWaitEvent(other_stream, event, 0))
        note("elapsed across", cu.cuEventElapsedTime(event, other_event)[:1])
        note("pop", cu.cuCtxPopCurrent())
    for call in (cu.cuCtxPopCurrent, cu.cuCtxPopCurrent, cu.cuCtxPopCurrent):
        note("pop", call())


def after_its_end():
    """Use objects once more after they have been destroyed.

    Except events: the shim has its own, and the driver may give one the handle of a destroyed
    event.
    """
    gpu = Gpu()
    word, stream, event = things(gpu)
    graph, executable = _graph(gpu, word)
    note("destroy", cu.cuStreamDestroy(stream))
    try_everything(gpu, word, stream, event, "no stream")
    note("twice", cu.cuStreamDestroy(stream))
    stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    note("destroy", cu.cuGraphExecDestroy(executable))
    note("launch", cu.cuGraphLaunch(executable, stream))
    note("twice", cu.cuGraphExecDestroy(executable))
    note("free", cu.cuMemFree(word))
    note("twice", cu.cuMemFree(word))
    note("write", cu.cuMemsetD32Async(word, 1, 1, stream))
    note("unload", cu.cuModuleUnload(gpu.module))
    note("twice", cu.cuModuleUnload(gpu.module))
    note("graph", cu.cuGraphInstantiate(graph, 0)[:1])


def after_its_context():
    """Use what went with its context."""
    gpu = Gpu()
    word, _, event = things(gpu)
    context = ok(cu.cuCtxCreate(None, 0, gpu.device))
    its_word, its_stream = ok(cu.cuMemAlloc(4)), ok(cu.cuStreamCreate(NON_BLOCKING))
    note("destroy", cu.cuCtxDestroy(context))
    note("current", cu.cuCtxSetCurrent(context))
    note("push", cu.cuCtxPushCurrent(context))
    ok(cu.cuCtxSetCurrent(gpu.context))
    try_everything(gpu, word, its_stream, event, "its stream")
    note("free", cu.cuMemFree(its_word))


def broken_images():
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        image = file.read()
    gpu = Gpu()
    cut = [image[:length] for length in (4, 64, len(image) // 2)]
    for number, data in enumerate([b"", b"no image", b".version 8.0\n.target", *cut]):
        # No length is passed: the driver reads as far as the headers of a whole image point.
        padded = data + bytes(len(image))
        note(f"{number}: module", cu.cuModuleLoadData(padded)[:1])
        note(f"{number}: with options", cu.cuModuleLoadDataEx(padded, 0, [], [])[:1])
        note(f"{number}: fat binary", cu.cuModuleLoadFatBinary(padded)[:1])
        note(f"{number}: library", cu.cuLibraryLoadData(padded, [], [], 0, [], [], 0)[:1])
    note("file", cu.cuModuleLoad(b"/nowhere")[:1])
    note("function", cu.cuModuleGetFunction(gpu.module, b"nothing")[:1])
    note("variable", cu.cuModuleGetGlobal(gpu.module, b"nothing")[:1])
    print(gpu.read(gpu.word(3)))


def loading():
    """Load a kernel at its first launch, or with its library."""
    gpu = Gpu()
    word, stream, _ = things(gpu)
    print("mode", note("mode", cu.cuModuleGetLoadingMode()))
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        library = ok(cu.cuLibraryLoadData(file.read(), [], [], 0, [], [], 0))
    function = ok(cu.cuKernelGetFunction(ok(cu.cuLibraryGetKernel(library, b"affine"))))
    print("before", note("loaded", cu.cuFuncIsLoaded(function)))
    gpu.kernel = function
    note("launch", launch(gpu, word, stream))
    print("after", note("loaded", cu.cuFuncIsLoaded(function)))
    note("synchronize", cu.cuStreamSynchronize(stream))
    print(gpu.read(word))


def slow_work(gpu, word, stream):
    for _ in range(3):
        gpu.affine(word, 2, 1, stream=stream, slow=True)


def _graph(gpu, word):
    graph = ok(cu.cuGraphCreate(0))
    node = gpu.add_kernel(graph, [], word, 2, 1, slow=True)
    gpu.add_kernel(graph, [node], word, 2, 1)
    return graph, ok(cu.cuGraphInstantiate(graph, 0))


def _end_graph(gpu, word, stream):
    graph, executable = _graph(gpu, word)
    note("launch", cu.cuGraphLaunch(executable, stream))
    note("destroy exec", cu.cuGraphExecDestroy(executable))
    note("destroy", cu.cuGraphDestroy(graph))


def _end_library(gpu, word, stream):
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        library = ok(cu.cuLibraryLoadData(file.read(), [], [], 0, [], [], 0))
    kernel = ok(cu.cuLibraryGetKernel(library, b"slow_affine"))
    values = ((word, 2, 1), (None, ctypes.c_uint, ctypes.c_uint))
    note("kernel", cu.cuLaunchKernel(int(kernel), 1, 1, 1, 1, 1, 1, 0, stream, values, 0))
    note("unload", cu.cuLibraryUnload(library))


ENDS = {
    "stream": lambda gpu, word, stream: note("destroy", cu.cuStreamDestroy(stream)),
    "module": lambda gpu, word, stream: note("unload", cu.cuModuleUnload(gpu.module)),
    "library": _end_library,
    "graph": _end_graph,
    "memory": lambda gpu, word, stream: note("free", cu.cuMemFree(word)),
    "primary": lambda gpu, word, stream: note("reset", cu.cuDevicePrimaryCtxReset(gpu.device)),
    "release": lambda gpu, word, stream: note("release", cu.cuDevicePrimaryCtxRelease(gpu.device)),
}


def end_in_flight(what):
    gpu = Gpu()
    word, stream, event = things(gpu)
    slow_work(gpu, word, stream)
    ok(cu.cuEventRecord(event, stream))
    ENDS[what](gpu, word, stream)
    note("synchronize", cu.cuCtxSynchronize())
    note("event", cu.cuEventQuery(event))
    host = u32(0)
    note("copy", cu.cuMemcpyDtoH(host.buffer_info()[0], word, 4), *host)
    note("allocate", cu.cuMemAlloc(4))


def context_in_flight():
    gpu = Gpu()
    context = ok(cu.cuCtxCreate(None, 0, gpu.device))
    stream, word = ok(cu.cuStreamCreate(0)), ok(cu.cuMemAlloc(4))
    ok(cu.cuMemsetD32Async(word, 1, 1, stream))
    ok(cu.cuMemsetD8Async(ok(cu.cuMemAlloc(1 << 22)), 1, 1 << 22, stream))
    note("destroy", cu.cuCtxDestroy(context))
    note("twice", cu.cuCtxDestroy(context))
    note("synchronize", cu.cuCtxSynchronize())
    ok(cu.cuCtxSetCurrent(gpu.context))
    note("primary", cu.cuCtxSynchronize())
    print(gpu.read(gpu.word(3)))


def green():
    gpu = Gpu()
    word, stream, event = things(gpu)
    whole = ok(cu.cuDeviceGetDevResource(gpu.device, SM))
    parts, _, _ = ok(cu.cuDevSmResourceSplitByCount(2, whole, FINE, 2))
    desc = ok(cu.cuDevResourceGenerateDesc([parts[0]], 1))
    context = ok(cu.cuGreenCtxCreate(desc, gpu.device, 1))
    own_stream = ok(cu.cuGreenCtxStreamCreate(context, NON_BLOCKING, 0))
    try_everything(gpu, word, own_stream, event, "its stream")
    as_context = ok(cu.cuCtxFromGreenCtx(context))
    note("push", cu.cuCtxPushCurrent(as_context))
    inside = ok(cu.cuStreamCreate(NON_BLOCKING))
    try_everything(gpu, word, inside, event, "inside")
    note("record", cu.cuGreenCtxRecordEvent(context, event))
    note("wait", cu.cuGreenCtxWaitEvent(context, event))
    note("pop", cu.cuCtxPopCurrent())
    slow_work(gpu, word, own_stream)
    note("destroy", cu.cuGreenCtxDestroy(context))
    try_everything(gpu, word, own_stream, event, "detached")
    note("stream", cu.cuStreamDestroy(own_stream))
    try_everything(gpu, word, stream, event, "afterwards")


def look_ups():
    """Call cuGetProcAddress in every case of its status."""
    driver = ctypes.CDLL("libcuda.so.1")
    names = (b"cuLaunchKernel", b"cuMemAlloc", b"cuStreamGetCtx", b"cuNoSuchThing", b"", None)
    for name in names:
        for version in (0, 2000, 3020, 11000, 12040, 13000, 99999):
            for flags in (0, 1, 2, 3, 64):
                for null in (False, True):
                    function, status = ctypes.c_void_p(1), ctypes.c_int(77)
                    out = None if null else ctypes.byref(status)
                    wide = ctypes.c_uint64(flags)
                    look = driver.cuGetProcAddress_v2
                    result = look(name, ctypes.byref(function), version, wide, out)
                    first = driver.cuGetProcAddress
                    found = ctypes.c_void_p(1)
                    old = first(name, ctypes.byref(found), version, wide)
                    print(name, version, flags, null, result, old, status.value, end=" ")
                    print(bool(function.value), bool(found.value))
    print(driver.cuGetProcAddress_v2(b"cuInit", None, 12000, ctypes.c_uint64(0), None))
    table = ctypes.c_void_p(1)
    print(driver.cuGetExportTable(ctypes.byref(table), (ctypes.c_char * 16)()), bool(table.value))


def threads():
    """Use the per-thread default streams of threads that come and go."""
    gpu = Gpu()
    per_thread, words = 2, [gpu.word(number) for number in range(40)]

    def compute(word):
        ok(cu.cuCtxSetCurrent(gpu.context))
        gpu.affine(word, 2, 1, stream=per_thread)
        ok(cu.cuStreamSynchronize(per_thread))

    for word in words:
        worker = threading.Thread(target=compute, args=(word,))
        worker.start()
        with outside():
            worker.join()
    print([gpu.read(word) for word in words])


def two_devices():
    gpu = Gpu()
    word, stream, event = things(gpu)
    context = ok(cu.cuDevicePrimaryCtxRetain(1))
    ok(cu.cuCtxSetCurrent(context))
    other, other_stream = ok(cu.cuMemAlloc(4)), ok(cu.cuStreamCreate(NON_BLOCKING))
    note("set", cu.cuMemsetD32Async(other, 5, 1, other_stream))
    try_everything(gpu, word, stream, event, "from the other")
    note("peer", cu.cuMemcpyPeerAsync(word, gpu.context, other, context, 4, other_stream))
    note("wait", cu.cuStreamSynchronize(other_stream))
    note("event", cu.cuStreamWaitEvent(other_stream, event, 0))
    ok(cu.cuCtxSetCurrent(gpu.context))
    print(gpu.read(word))
    note("reset", cu.cuDevicePrimaryCtxReset(1))
    note("own", cu.cuStreamSynchronize(stream))
    note("theirs", cu.cuStreamQuery(other_stream))


def visible():
    note("init", cu.cuInit(0))
    count = note("count", cu.cuDeviceGetCount()) or 0
    print("devices", *(bytes(ok(cu.cuDeviceGetUuid(i)).bytes).hex() for i in range(count)))
    if count:
        gpu = Gpu()
        print(gpu.read(gpu.word(5)))


def visible_by_uuid(kind, device):
    """Show only the device of that number, by the UUID that a process without the variable sees."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        ok(cu.cuInit(0))
        os.write(writing, bytes(ok(cu.cuDeviceGetUuid(int(device))).bytes))
        os._exit(0)
    os.wait()
    os.environ["CUDA_VISIBLE_DEVICES"] = f"{kind}-{uuid.UUID(bytes=os.read(reading, 16))}"
    visible()


def in_child(words, env):
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.update(env)
            signal.alarm(PATIENCE_S)
            globals()[words[0]](*words[1:])
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return f"{output.read().decode()}ended with {status}"


if __name__ == "__main__":
    requests = json.load(sys.stdin)
    answers = {name: in_child(r["words"], r["env"]) for name, r in requests.items()}
    print(json.dumps(answers))

"""Libraries, and what of them belongs to a context; launches that are refused."""

from __future__ import annotations

import ctypes
import os

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused

ATTRIBUTE = cu.CUfunction_attribute


def _library():
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        return ok(cu.cuLibraryLoadData(file.read(), [], [], 0, [], [], 0))


def a_library_has_its_variables_and_functions_once_in_each_context():
    gpu = Gpu()
    library = _library()
    kernel = ok(cu.cuLibraryGetKernel(library, b"count_up"))
    first, size = ok(cu.cuLibraryGetGlobal(library, b"counter"))
    assert size == 4
    ok(cu.cuMemsetD32(first, 0, 1))
    function = ok(cu.cuKernelGetFunction(kernel))
    assert int(ok(cu.cuKernelGetFunction(kernel))) == int(function)
    assert int(ok(cu.cuFuncGetModule(function))) == int(ok(cu.cuLibraryGetModule(library)))
    assert refused(cu.cuModuleUnload(ok(cu.cuLibraryGetModule(library)))) == "NOT_PERMITTED"
    # A kernel can be launched without getting its function first.
    for _ in range(3):
        ok(cu.cuLaunchKernel(cu.CUfunction(int(kernel)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    other = ok(cu.cuCtxCreate(None, 0, gpu.device))
    second, _ = ok(cu.cuLibraryGetGlobal(library, b"counter"))
    assert int(second) != int(first)
    assert int(ok(cu.cuKernelGetFunction(kernel))) != int(function)
    ok(cu.cuMemsetD32(second, 0, 1))
    ok(cu.cuLaunchKernel(cu.CUfunction(int(kernel)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    assert gpu.read(second) == [1]
    ok(cu.cuCtxDestroy(other))
    ok(cu.cuCtxSetCurrent(gpu.context))
    assert gpu.read(first) == [3]
    ok(cu.cuLibraryUnload(library))


def a_library_lists_its_kernels():
    gpu = Gpu()
    library = _library()
    count = ok(cu.cuLibraryGetKernelCount(library))
    kernels = ok(cu.cuLibraryEnumerateKernels(count, library))
    names = {ok(cu.cuKernelGetName(kernel)) for kernel in kernels}
    assert {b"vadd", b"affine", b"count_up"} <= names
    assert len(names) == count
    assert ok(cu.cuModuleGetFunctionCount(gpu.module)) == count
    functions = ok(cu.cuModuleEnumerateFunctions(count, gpu.module))
    assert {ok(cu.cuFuncGetName(function)) for function in functions} == names
    assert int(ok(cu.cuKernelGetLibrary(kernels[0]))) == int(library)
    assert refused(cu.cuLibraryGetKernel(library, b"no_such_kernel")) == "NOT_FOUND"
    assert refused(cu.cuLibraryGetGlobal(library, b"no_such_variable")) == "NOT_FOUND"
    assert refused(cu.cuLibraryGetManaged(library, b"counter")) == "NOT_FOUND"
    option = cu.CUlibraryOption.CU_LIBRARY_BINARY_IS_PRESERVED
    path = os.environ["TEST_IMAGE"].encode()
    assert refused(cu.cuLibraryLoadFromFile(path, [], [], 0, [option], [1], 1)) == "INVALID_VALUE"


def a_kernel_and_its_function_have_attributes_of_their_own():
    gpu = Gpu()
    kernel = ok(cu.cuLibraryGetKernel(_library(), b"affine"))
    shared = ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ok(cu.cuKernelSetAttribute(shared, 8192, kernel, gpu.device))
    assert ok(cu.cuKernelGetAttribute(shared, kernel, gpu.device)) == 8192
    function = ok(cu.cuKernelGetFunction(kernel))
    ok(cu.cuFuncSetAttribute(function, shared, 16384))
    assert ok(cu.cuFuncGetAttribute(shared, function)) == 16384
    assert ok(cu.cuKernelGetAttribute(shared, kernel, gpu.device)) == 8192
    ok(cu.cuFuncLoad(function))
    loaded = cu.CUfunctionLoadingState.CU_FUNCTION_LOADING_STATE_LOADED
    assert ok(cu.cuFuncIsLoaded(function)) == loaded
    registers = ATTRIBUTE.CU_FUNC_ATTRIBUTE_NUM_REGS
    assert refused(cu.cuFuncSetAttribute(function, registers, 8)) == "INVALID_VALUE"
    assert refused(cu.cuFuncSetAttribute(function, shared, 1 << 30)) == "INVALID_VALUE"
    assert 0 < ok(cu.cuFuncGetAttribute(registers, function)) <= 255


def a_block_of_much_shared_memory_has_to_be_asked_for():
    gpu = Gpu()
    function = gpu.function("count_up")
    attribute = cu.CUdevice_attribute
    most = ok(
        cu.cuDeviceGetAttribute(
            attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpu.device
        )
    )

    def launch(shared_bytes):
        return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared_bytes, 0, 0, 0)

    ok(launch(48 << 10))
    assert most > 48 << 10
    assert refused(launch((48 << 10) + 1)) == "INVALID_VALUE"
    shared = ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ok(cu.cuFuncSetAttribute(function, shared, most))
    ok(launch(most))
    assert refused(launch(most + 1)) == "INVALID_VALUE"
    ok(cu.cuCtxSynchronize())


def occupancy_follows_the_limits_of_an_sm():
    gpu = Gpu()
    function = gpu.function("count_up")
    attribute = cu.CUdevice_attribute

    def of_device(name):
        which = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return ok(cu.cuDeviceGetAttribute(which, gpu.device))

    threads = of_device("MAX_THREADS_PER_MULTIPROCESSOR")
    blocks = of_device("MAX_BLOCKS_PER_MULTIPROCESSOR")
    shared = of_device("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
    reserved = of_device("RESERVED_SHARED_MEMORY_PER_BLOCK")
    fit = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert ok(fit(function, 32, 0)) == blocks
    assert ok(fit(function, 1024, 0)) == threads // 1024
    assert ok(fit(function, 32, 40 << 10)) == shared // ((40 << 10) + reserved)
    assert refused(fit(function, 0, 0)) == "INVALID_VALUE"
    grid, block = ok(cu.cuOccupancyMaxPotentialBlockSize(function, 0, 0, 0))
    assert ok(fit(function, block, 0)) * block == threads
    assert grid == ok(fit(function, block, 0)) * of_device("MULTIPROCESSOR_COUNT")
    _, small = ok(cu.cuOccupancyMaxPotentialBlockSize(function, 0, 0, 96))
    assert 0 < small <= 96
    room = ok(cu.cuOccupancyAvailableDynamicSMemPerBlock(function, 4, 128))
    assert ok(fit(function, 128, room)) >= 4


def a_cooperative_grid_must_fit_the_device():
    gpu = Gpu()
    function = gpu.function("count_up")
    sms = ok(
        cu.cuDeviceGetAttribute(
            cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device
        )
    )
    most = sms * ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0))
    launch = cu.cuLaunchCooperativeKernel
    ok(launch(function, most, 1, 1, 256, 1, 1, 0, 0, 0))
    too_large = launch(function, most + 1, 1, 1, 256, 1, 1, 0, 0, 0)
    assert refused(too_large) == "COOPERATIVE_LAUNCH_TOO_LARGE"
    ok(cu.cuCtxSynchronize())


def launch_attributes_are_checked():
    gpu = Gpu()
    function = gpu.function("count_up")
    ids = cu.CUlaunchAttributeID

    def launch(name, *, grid=1, **values):
        attribute = cu.CUlaunchAttribute()
        attribute.id = getattr(ids, f"CU_LAUNCH_ATTRIBUTE_{name}")
        for field, value in values.items():
            target = attribute.value
            *path, last = field.split("__")
            for part in path:
                target = getattr(target, part)
            setattr(target, last, value)
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX = config.blockDimY = config.blockDimZ = 1
        config.attrs, config.numAttrs = [attribute], 1
        return cu.cuLaunchKernelEx(config, function, 0, 0)

    ok(launch("IGNORE"))
    ok(launch("PRIORITY", priority=-1))
    ok(launch("PROGRAMMATIC_STREAM_SERIALIZATION", programmaticStreamSerializationAllowed=1))
    cluster = {"clusterDim__y": 1, "clusterDim__z": 1}
    ok(launch("CLUSTER_DIMENSION", grid=4, clusterDim__x=2, **cluster))
    assert refused(launch("CLUSTER_DIMENSION", grid=3, clusterDim__x=2, **cluster)) in (
        "INVALID_CLUSTER_SIZE",
        "INVALID_VALUE",
    )
    assert refused(launch("CLUSTER_DIMENSION", grid=64, clusterDim__x=32, **cluster)) in (
        "INVALID_CLUSTER_SIZE",
        "INVALID_VALUE",
    )
    timed = ok(cu.cuEventCreate(0))
    bad = launch("LAUNCH_COMPLETION_EVENT", launchCompletionEvent__event=timed)
    assert refused(bad) == "INVALID_VALUE"
    event = ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    ok(launch("LAUNCH_COMPLETION_EVENT", launchCompletionEvent__event=event))
    ok(cu.cuEventSynchronize(event))
    assert launch("DEVICE_UPDATABLE_KERNEL_NODE", deviceUpdatableKernelNode__deviceUpdatable=1)[0]
    ok(cu.cuCtxSynchronize())


def images_that_cannot_be_loaded_say_why():
    Gpu()
    size = 4096
    log = bytes(size)  # the driver writes into it
    options = [
        cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
        cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ]
    broken = b".version 8.0\n.target sm_80\n.address_size 64\nno such thing;\n\0"
    values = [log, size]
    assert refused(cu.cuModuleLoadDataEx(b"this is no PTX\0", 2, options, values)) == "INVALID_PTX"
    assert log.strip(b"\0")
    assert refused(cu.cuModuleLoadData(broken)) in ("INVALID_PTX", "NO_BINARY_FOR_GPU")
    new = b".version 99.0\n.target sm_80\n.address_size 64\n\0"
    assert refused(cu.cuModuleLoadData(new)) == "UNSUPPORTED_PTX_VERSION"
    assert refused(cu.cuModuleLoad(b"/no/such/file")) == "FILE_NOT_FOUND"


def what_was_linked_can_be_loaded_after_the_link_is_gone():
    gpu = Gpu()
    kinds = cu.CUjitInputType
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        image = file.read()
    state = ok(cu.cuLinkCreate(0, [], []))
    ok(cu.cuLinkAddData(state, kinds.CU_JIT_INPUT_CUBIN, image, len(image), b"kernels", 0, [], []))
    cubin, size = ok(cu.cuLinkComplete(state))
    linked = ctypes.string_at(cubin, size)
    ok(cu.cuLinkDestroy(state))
    assert linked.startswith(b"\x7fELF")
    module = ok(cu.cuModuleLoadData(linked))
    word = gpu.word(4)
    function = ok(cu.cuModuleGetFunction(module, b"affine"))
    types = (None, ctypes.c_uint, ctypes.c_uint)
    ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ((word, 3, 1), types), 0))
    assert gpu.read(word) == [13]
    ok(cu.cuModuleUnload(module))


def a_link_refuses_what_is_no_code():
    Gpu()
    kinds = cu.CUjitInputType
    state = ok(cu.cuLinkCreate(0, [], []))

    def add(kind, data):
        return cu.cuLinkAddData(state, kind, data, len(data), b"input", 0, [], [])

    assert refused(add(kinds.CU_JIT_INPUT_PTX, b"this is no PTX\0")) == "INVALID_PTX"
    new = b".version 99.0\n.target sm_80\n.address_size 64\n\0"
    assert refused(add(kinds.CU_JIT_INPUT_PTX, new)) == "UNSUPPORTED_PTX_VERSION"
    missing = cu.cuLinkAddFile(state, kinds.CU_JIT_INPUT_PTX, b"/no/such/file", 0, [], [])
    assert refused(missing) == "FILE_NOT_FOUND"
    ok(cu.cuLinkDestroy(state))


PTX_HEADER = b".version 7.0\n.target sm_70\n.address_size 64\n"
# Both inputs have a private variable `own`.
CALLER = (
    PTX_HEADER
    + b"""
.extern .func (.param .b32 result) twice(.param .b32 given);
.global .align 4 .u32 own = 1;
.visible .entry apply(.param .u64 at)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  .param .b32 given;
  .param .b32 result;
  ld.param.u64 %rd1, [at];
  ld.global.u32 %r1, [%rd1];
  st.param.b32 [given], %r1;
  call.uni (result), twice, (given);
  ld.param.b32 %r2, [result];
  ld.global.u32 %r3, [own];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;
  ret;
}
\0"""
)
CALLED = (
    PTX_HEADER
    + b"""
.global .align 4 .u32 own = 100;
.visible .func (.param .b32 result) twice(.param .b32 given)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [given];
  shl.b32 %r1, %r1, 1;
  ld.global.u32 %r2, [own];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [result], %r1;
  ret;
}
\0"""
)


def linked_texts_use_what_the_others_define_and_keep_their_own():
    gpu = Gpu()
    kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
    state = ok(cu.cuLinkCreate(0, [], []))
    for text in (CALLER, CALLED):
        ok(cu.cuLinkAddData(state, kind, text, len(text), b"input", 0, [], []))
    cubin, size = ok(cu.cuLinkComplete(state))
    module = ok(cu.cuModuleLoadData(ctypes.string_at(cubin, size)))
    ok(cu.cuLinkDestroy(state))
    word = gpu.word(5)
    function = ok(cu.cuModuleGetFunction(module, b"apply"))
    ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ((word,), (None,)), 0))
    assert gpu.read(word) == [2 * 5 + 100 + 1]
    ok(cu.cuModuleUnload(module))


def a_link_fails_where_something_is_defined_nowhere():
    Gpu()
    kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
    state = ok(cu.cuLinkCreate(0, [], []))
    ok(cu.cuLinkAddData(state, kind, CALLER, len(CALLER), b"caller", 0, [], []))
    refused(cu.cuLinkComplete(state))
    ok(cu.cuLinkDestroy(state))

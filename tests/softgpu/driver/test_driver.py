"""What is special about our driver: look-ups, kernels from elsewhere, the queue, its stubs."""

import subprocess
from pathlib import Path

import pytest

API = Path(__file__).parents[3] / "csrc" / "api"


@pytest.mark.parametrize("listing", sorted(API.glob("1*.txt")), ids=lambda p: p.stem)
def test_every_name_of_the_headers_is_exported(gpu, listing):
    library = gpu.env()["LD_LIBRARY_PATH"].split(":")[0] + "/libcuda.so.1"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout  # fmt: skip
    exported = {line.split()[-1] for line in symbols.splitlines()}

    assert set(listing.read_text().split()) - exported == set()


LOOK_UP = """
def look_up(name, version, flags=0):
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    rc = libcuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), version,
                                     ctypes.c_uint64(flags), ctypes.byref(status))
    assert rc == 0
    return pointer.value, status.value
def exported(name):
    return ctypes.cast(getattr(libcuda, name), ctypes.c_void_p).value
"""


def test_a_name_is_found_by_version_and_kind_of_default_stream(gpu):
    gpu.run(
        LOOK_UP
        + """
assert look_up("cuCtxCreate", 3020) == (exported("cuCtxCreate_v2"), 0)
assert look_up("cuCtxCreate", 12000) == (exported("cuCtxCreate_v3"), 0)
assert look_up("cuCtxCreate", 13000) == (exported("cuCtxCreate_v4"), 0)
assert look_up("cuLaunchKernel", 12000, 2) == (exported("cuLaunchKernel_ptsz"), 0)
assert look_up("cuLaunchKernel", 12000, 1) == (exported("cuLaunchKernel"), 0)
assert look_up("cuMemcpyHtoD", 12000, 2) == (exported("cuMemcpyHtoD_v2_ptds"), 0)
assert look_up("cuInit", 12000, 2) == (exported("cuInit"), 0)
assert look_up("cuGreenCtxCreate", 11000) == (None, 2)
assert look_up("cuNoSuchThing", 13000) == (None, 1)
nothing = ctypes.byref(ctypes.c_void_p())
assert libcuda.cuGetProcAddress(b"cuNoSuchThing", nothing, 13000, ctypes.c_uint64(0)) == 500
"""
    )


def test_a_function_without_an_implementation_says_not_supported(gpu):
    gpu.run(
        "Gpu(); assert refused(cu.cuSurfObjectCreate(cu.CUDA_RESOURCE_DESC())) == 'NOT_SUPPORTED'"
    )


def test_per_thread_bindings_use_the_per_thread_stream(gpu):
    gpu.run(
        """
gpu = Gpu()
assert ok(cu.cuStreamGetId(0)) == ok(cu.cuStreamGetId(2)) != ok(cu.cuStreamGetId(1))
word = gpu.word(4); gpu.affine(word, 2, 0, slow=True); ok(cu.cuStreamSynchronize(0))
assert gpu.read(word) == [8]
""",
        CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM="1",
    )


def test_packed_parameters_are_taken_as_they_are(gpu):
    gpu.run("""
gpu = Gpu(); word = gpu.word(3)
class Params(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint64), ("factor", ctypes.c_uint), ("addend", ctypes.c_uint)]
params, size = Params(int(word), 4, 2), ctypes.c_size_t(ctypes.sizeof(Params))
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(params), 2, ctypes.addressof(size), 0)
f = gpu.function("affine")
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra)))
assert gpu.read(word) == [14]
""")


PTX = b""".version 8.0
.target sm_90
.visible .entry affine(.param .u64 x, .param .u32 factor, .param .u32 addend) {ret;}
\0"""


def test_bodies_for_foreign_images_come_from_the_named_libraries(gpu, image):
    program = f"""
gpu = Gpu(); word = gpu.word(5)
kernel = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData({PTX!r})), b"affine"))
values = ((word, 3, 4), (None, ctypes.c_uint, ctypes.c_uint))
ok(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, values, 0))
print(gpu.read(word))
"""

    assert gpu.run(program, TANDEM_SOFTGPU_KERNELS=str(image)) == "[19]"
    assert gpu.run(program) == "[5]"  # the PTX itself does nothing


def test_a_full_queue_makes_the_launching_thread_wait(gpu):
    out = gpu.run(
        """
gpu = Gpu(); word = gpu.word(1); s = ok(cu.cuStreamCreate(1))
before = libcuda.softgpu_now_ns()
for i in range(4): gpu.affine(word, 1, 1, stream=s, slow=True)
assert libcuda.softgpu_now_ns() == before
gpu.affine(word, 1, 1, stream=s, slow=True)
assert libcuda.softgpu_now_ns() > before
ok(cu.cuStreamSynchronize(s))
print(gpu.read(word))
""",
        TANDEM_SOFTGPU_QUEUE="4",
    )

    assert out == "[6]"


def test_a_host_function_may_not_call_the_driver(gpu):
    out = gpu.run("""
gpu = Gpu(); seen = []
def host(_): seen.append(refused(cu.cuCtxSynchronize()))
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(host)
ok(cu.cuLaunchHostFunc(0, ctypes.cast(call, ctypes.c_void_p).value, 0))
ok(cu.cuCtxSynchronize()); print(seen)
""")

    assert out == "['NOT_PERMITTED']"


def test_more_streams_than_one_message_names_are_ordered(gpu):
    out = gpu.run("""
gpu = Gpu(); streams = [ok(cu.cuStreamCreate(0)) for _ in range(60)]
words = [gpu.word(i) for i in range(60)]
for s, w in zip(streams, words): gpu.affine(w, 1, 100, stream=s, slow=True)
total = gpu.word(0)
ok(cu.cuMemcpyDtoDAsync(total, words[-1], 4, 0)); gpu.affine(total, 1, 0)
ok(cu.cuStreamSynchronize(0))
print(gpu.read(total), all(cu.cuStreamQuery(s)[0] == 0 for s in streams))
""")

    assert out == "[159] True"


def test_nvml_sees_the_program_and_its_memory(gpu):
    gpu.run("""
import pynvml
gpu = Gpu(); ok(cu.cuMemAlloc(100 << 20))
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == 1
device = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(device).startswith("Tandem Software GPU")
assert pynvml.nvmlDeviceGetNumGpuCores(device) % 64 == 0
(process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
assert process.pid == os.getpid() and process.usedGpuMemory >= 100 << 20
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
assert memory.used == process.usedGpuMemory
assert memory.total == ok(cu.cuDeviceTotalMem(gpu.device))
uuid = pynvml.nvmlDeviceGetUUID(device).removeprefix("GPU-").replace("-", "")
assert bytes.fromhex(uuid) == ok(cu.cuDeviceGetUuid(gpu.device)).bytes
try: pynvml.nvmlDeviceGetFanSpeed(device)
except pynvml.NVMLError_NotSupported: pass
else: raise AssertionError
""")

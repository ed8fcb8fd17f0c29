"""MIG: devices cut into GPU instances, as CUDA and NVML see them."""

import subprocess

import pytest

from tandem.softgpu import DEVICE_PROGRAM

LAYOUT = "1g.18gb,3g.71gb"
NVML = """
import pynvml as nv
nv.nvmlInit()
device = nv.nvmlDeviceGetHandleByIndex(0)
def code(call, *arguments):
    try: call(*arguments)
    except nv.NVMLError as error: return error.value
    return 0
"""
ASK = (
    NVML
    + "print(*[nv.nvmlDeviceGetUUID(m) for m in map("
    + (
        "lambda i: nv.nvmlDeviceGetMigDeviceHandleByIndex(device, i), range(2))],"
        " nv.nvmlDeviceGetUUID(device))"
    )
)
SEEN = """
ok(cu.cuInit(0))
uuid = lambda d: bytes(ok(cu.cuDeviceGetUuid(d)).bytes).hex()
sms = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
print([(ok(cu.cuDeviceGetAttribute(sms, d)), ok(cu.cuDeviceTotalMem(d)) >> 20,
        ok(cu.cuDeviceGetName(64, d)).split(b"\\0")[0].decode()[-11:], uuid(d))
       for d in range(ok(cu.cuDeviceGetCount()))])
"""


@pytest.fixture
def mig(gpu):
    gpu.options |= {"profile": "h200", "mig": LAYOUT}
    return gpu


@pytest.mark.slow
def test_cuda_sees_the_instance_that_its_variable_names_and_nothing_else(mig):
    small, large, device = mig.run(ASK).split()

    def seen(**env: str) -> list:
        return [row[:3] for row in eval(mig.run(SEEN, **env))]

    first, second = [(16, 18048, "MIG 1g.18gb")], [(60, 72192, "MIG 3g.71gb")]
    assert seen() == first
    assert seen(CUDA_VISIBLE_DEVICES=large) == second
    assert seen(CUDA_VISIBLE_DEVICES=f"{large},{small}") == second
    assert seen(CUDA_VISIBLE_DEVICES=large[:-2].upper() + large[-2:]) == second
    assert seen(CUDA_VISIBLE_DEVICES="0") == seen(CUDA_VISIBLE_DEVICES=device) == first
    assert seen(CUDA_VISIBLE_DEVICES=f"MIG-{device}/2/0") == second
    for nothing in ("", "1", "-1", "MIG-", "MIG-00", f"MIG-{device}/3/0", f"MIG-{device}/2/1"):
        refusal = mig.run("print(refused(cu.cuInit(0)))", CUDA_VISIBLE_DEVICES=nothing)
        assert refusal == "NO_DEVICE", nothing


@pytest.mark.slow
def test_the_variable_chooses_and_orders_whole_devices(gpu):
    gpu.options |= {"devices": "3"}
    uuids = gpu.run("""
import pynvml as nv
nv.nvmlInit()
print(*[nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByIndex(i)) for i in range(3)])
""").split()

    def seen(shown: str) -> list[int]:
        rows = eval(gpu.run(SEEN, CUDA_VISIBLE_DEVICES=shown))
        return [[u[4:].replace("-", "") for u in uuids].index(row[3]) for row in rows]

    assert seen("2,0") == [2, 0]
    assert seen("1,7,0") == [1]
    assert seen("0,0,1") == [0]
    assert seen(f" {uuids[2]} , {uuids[0]}") == [2, 0]
    # A UUID prefix that several devices share names none of them.
    assert gpu.run("print(refused(cu.cuInit(0)))", CUDA_VISIBLE_DEVICES="GPU-54") == "NO_DEVICE"


def test_work_goes_to_the_device_that_was_chosen(gpu):
    gpu.options |= {"devices": "2"}
    used = gpu.run(
        """
import pynvml as nv
nv.nvmlInit()
gpu = Gpu(); word = gpu.word(3); gpu.affine(word, 2, 1)
assert gpu.read(word) == [7]
assert ok(cu.cuDeviceGetPCIBusId(32, 0)).split(b"\\0")[0] == b"0000:01:01.0"
assert int(ok(cu.cuDeviceGetByPCIBusId(b"0000:01:01.0"))) == 0
print(*[nv.nvmlDeviceGetMemoryInfo(nv.nvmlDeviceGetHandleByIndex(i)).used > 0 for i in (0, 1)])
""",
        CUDA_VISIBLE_DEVICES="1",
    )

    assert used == "False True"
    assert [row["gpu"] for row in gpu.timeline()] == [1]


LONG = """
gpu = Gpu(); word = gpu.word(1)
for _ in range(4): gpu.affine(word, 1, 1, slow=True)
ok(cu.cuCtxSynchronize())
"""


@pytest.mark.slow
@pytest.mark.parametrize("same", [False, True])
def test_instances_overlap_where_contexts_on_one_take_turns(mig, same):
    small, large, _ = mig.run(ASK).split()
    mig.options["start_clients"] = "2"
    mig.folder = mig.folder / "second"
    mig.folder.mkdir()
    shown = (large, large) if same else (small, large)
    children = [mig.start(LONG, CUDA_VISIBLE_DEVICES=uuid) for uuid in shown]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors

    rows = mig.timeline()
    by_pid = [[r for r in rows if r["pid"] == child.pid] for child in children]
    assert [{r["gpu"] for r in part} for part in by_pid] == [{1} if same else {0}, {1}]
    overlap = any(
        a["t_start_ns"] < b["t_end_ns"] and b["t_start_ns"] < a["t_end_ns"]
        for a in by_pid[0]
        for b in by_pid[1]
    )
    assert overlap is not same
    assert bool(mig.timeline("switch")) is same


def test_memory_of_an_instance_is_its_own(mig):
    _, large, _ = mig.run(ASK).split()
    mig.run(
        NVML
        + f"""
gpu = Gpu()
mine = nv.nvmlDeviceGetHandleByUUID("{large}")
other = nv.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
free, total = cu.cuMemGetInfo()[1:]
assert total == 72192 << 20 == nv.nvmlDeviceGetMemoryInfo(mine).total
assert refused(cu.cuMemAlloc(total)) == "OUT_OF_MEMORY"
ok(cu.cuMemAlloc(20 << 30))  # more than the other instance has
used = nv.nvmlDeviceGetMemoryInfo(mine).used
assert used > 20 << 30 and nv.nvmlDeviceGetMemoryInfo(other).used == 0
assert nv.nvmlDeviceGetMemoryInfo(device).used == used
(process,) = nv.nvmlDeviceGetComputeRunningProcesses(mine)
assert (process.pid, process.gpuInstanceId, process.computeInstanceId) == (os.getpid(), 2, 0)
assert nv.nvmlDeviceGetComputeRunningProcesses(other) == []
(process,) = nv.nvmlDeviceGetComputeRunningProcesses(device)
assert process.gpuInstanceId == 2
""",
        CUDA_VISIBLE_DEVICES=large,
    )


def test_nvml_tells_devices_and_instances_apart(mig):
    mig.run(
        NVML
        + """
assert nv.nvmlDeviceGetCount() == 1
assert nv.nvmlDeviceGetMigMode(device) == [1, 1]
assert nv.nvmlDeviceGetMaxMigDeviceCount(device) == 7
assert nv.nvmlDeviceGetMemoryInfo(device).total == 141 << 30
assert nv.nvmlDeviceGetName(device) == "Tandem Software GPU (h200)"
assert nv.nvmlDeviceGetUUID(device).startswith("GPU-")
small, large = [nv.nvmlDeviceGetMigDeviceHandleByIndex(device, i) for i in (0, 1)]
assert code(nv.nvmlDeviceGetMigDeviceHandleByIndex, device, 2) == nv.NVML_ERROR_NOT_FOUND
assert code(nv.nvmlDeviceGetMigDeviceHandleByIndex, device, 7) == nv.NVML_ERROR_INVALID_ARGUMENT
assert code(nv.nvmlDeviceGetMigDeviceHandleByIndex, small, 0) == nv.NVML_ERROR_NOT_SUPPORTED
assert [nv.nvmlDeviceIsMigDeviceHandle(h).value for h in (device, small)] == [0, 1]
assert nv.nvmlDeviceGetName(large).endswith(" MIG 3g.71gb")
for one in (device, small, large):
    assert nv.nvmlDeviceGetBAR1MemoryInfo(one).bar1Total == nv.nvmlDeviceGetMemoryInfo(one).total
uuid = nv.nvmlDeviceGetUUID(large)
assert uuid.startswith("MIG-") and nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID(uuid)) == uuid
assert nv.nvmlDeviceGetGpuInstanceId(large) == 2 and nv.nvmlDeviceGetComputeInstanceId(large) == 0
assert code(nv.nvmlDeviceGetGpuInstanceId, device) == nv.NVML_ERROR_INVALID_ARGUMENT
parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(large)
assert nv.nvmlDeviceGetUUID(parent) == nv.nvmlDeviceGetUUID(device)
facts = nv.nvmlDeviceGetAttributes_v2(large)
assert (facts.multiprocessorCount, facts.gpuInstanceSliceCount, facts.memorySizeMB,
        facts.sharedCopyEngineCount) == (60, 3, 72192, 3)
assert code(nv.nvmlDeviceGetAttributes_v2, device) == nv.NVML_ERROR_INVALID_ARGUMENT
assert code(nv.nvmlDeviceGetUtilizationRates, device) == nv.NVML_ERROR_NOT_SUPPORTED
assert code(nv.nvmlDeviceGetTemperature, small, 0) == nv.NVML_ERROR_NOT_SUPPORTED
assert nv.nvmlDeviceGetPowerUsage(device) == 75_000

three = nv.nvmlDeviceGetGpuInstanceProfileInfo(device, nv.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
assert (three.id, three.sliceCount, three.instanceCount, three.name) == (9, 3, 2, "MIG 3g.71gb")
plain = nv.nvmlDeviceGetGpuInstanceProfileInfo(device, 2, version=1)
assert (plain.id, plain.memorySizeMB) == (9, 72192)
assert code(nv.nvmlDeviceGetGpuInstanceProfileInfo, device, 5) == nv.NVML_ERROR_NOT_SUPPORTED
assert code(nv.nvmlDeviceGetGpuInstanceProfileInfo, device, 99) == nv.NVML_ERROR_INVALID_ARGUMENT
places, count = (nv.c_nvmlGpuInstancePlacement_t * 7)(), nv.c_uint(7)
nv.nvmlDeviceGetGpuInstancePossiblePlacements(device, 9, places, nv.byref(count))
assert [(p.start, p.size) for p in places[:count.value]] == [(0, 4), (4, 4)]
found = (nv.c_nvmlGpuInstance_t * 7)()
nv.nvmlDeviceGetGpuInstances(device, 9, found, nv.byref(count))
assert count.value == 1
info = nv.nvmlGpuInstanceGetInfo(found[0])
assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 9, 4, 4)
assert nv.nvmlGpuInstanceGetInfo(nv.nvmlDeviceGetGpuInstanceById(device, 1)).profileId == 19
assert code(nv.nvmlDeviceGetGpuInstanceById, device, 3) == nv.NVML_ERROR_NOT_FOUND
"""
    )


def test_without_a_layout_mig_is_off_or_not_there(gpu):
    off = NVML + "print(code(nv.nvmlDeviceGetMigMode, device))"
    assert gpu.run(off) == "3"  # tiny does not support it
    gpu.folder = gpu.folder / "second"
    gpu.folder.mkdir()
    gpu.options["profile"] = "a100"
    assert gpu.run(NVML + "print(nv.nvmlDeviceGetMigMode(device))") == "[0, 0]"
    places = "nv.nvmlDeviceGetGpuInstancePossiblePlacements, device, 9, None, nv.byref(count)"
    told = gpu.run(NVML + f"count = nv.c_uint(); print(code({places}), count.value)")
    assert told == "0 2"  # whether MIG is on or off, as in NVML's reference


def test_a_wrong_layout_ends_the_device_process_with_words(tmp_path):
    command = [str(DEVICE_PROGRAM), "--dir", str(tmp_path), "--profile", "tiny", "--mig", "1g.18gb"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert ended.returncode == 2
    assert "--mig: '1g.18gb' for profile tiny, which has no MIG" in ended.stderr


CUT = """
free = nv.nvmlDeviceGetHandleByIndex
def uuids(): return [nv.nvmlDeviceGetUUID(m) for m in found()]
def found():
    for place in range(7):
        try: yield nv.nvmlDeviceGetMigDeviceHandleByIndex(device, place)
        except nv.NVMLError_NotFound: return
def profile(name):
    for number in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try: info = nv.nvmlDeviceGetGpuInstanceProfileInfo(device, number)
        except nv.NVMLError_NotSupported: continue
        if info.name == "MIG " + name: return info.id
"""


def test_a_device_is_cut_anew_while_nobody_is_at_work(gpu):
    gpu.options |= {"profile": "h200"}
    gpu.run(
        NVML
        + CUT
        + """
assert nv.nvmlDeviceSetMigMode(device, 1) == 0 and nv.nvmlDeviceGetMigMode(device) == [1, 1]
assert list(found()) == []
large = nv.nvmlDeviceCreateGpuInstance(device, profile("3g.71gb"))
assert list(found()) == []  # nothing can be on it yet
compute = nv.nvmlGpuInstanceCreateComputeInstance(large, nv.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE)
(one,) = found()
assert nv.nvmlDeviceGetAttributes_v2(one).multiprocessorCount == 60
assert code(nv.nvmlGpuInstanceDestroy, large) == nv.NVML_ERROR_IN_USE
assert code(nv.nvmlDeviceSetMigMode, device, 0) == nv.NVML_ERROR_IN_USE
assert code(nv.nvmlDeviceCreateGpuInstance, device, profile("7g.141gb")) == (
    nv.NVML_ERROR_INSUFFICIENT_RESOURCES)
place = nv.c_nvmlGpuInstancePlacement_t(start=2, size=1)
made_at = nv.nvmlDeviceCreateGpuInstanceWithPlacement
assert code(made_at, device, profile("1g.18gb"), nv.byref(place)) == 23  # taken
place.start, place.size = 5, 2
assert code(made_at, device, profile("1g.18gb"), nv.byref(place)) == nv.NVML_ERROR_INVALID_ARGUMENT
place.size = 1
small = made_at(device, profile("1g.18gb"), nv.byref(place))
info = nv.nvmlGpuInstanceGetInfo(small)
assert (info.id, info.placement.start) == (2, 5)
nv.nvmlComputeInstanceDestroy(compute)
nv.nvmlGpuInstanceDestroy(large)
assert nv.nvmlGpuInstanceGetInfo(small).id == 2  # its handle stays its own
nv.nvmlGpuInstanceDestroy(small)
assert nv.nvmlDeviceSetMigMode(device, 0) == 0

gpu = Gpu()
assert code(nv.nvmlDeviceSetMigMode, device, 1) == nv.NVML_ERROR_IN_USE
"""
    )


def test_cuda_sees_the_instances_that_were_made(gpu):
    gpu.options |= {"profile": "h200"}
    made = gpu.run(
        NVML
        + CUT
        + """
nv.nvmlDeviceSetMigMode(device, 1)
for name, slices in (("4g.71gb", 3), ("3g.71gb", 2)):
    nv.nvmlGpuInstanceCreateComputeInstance(
        nv.nvmlDeviceCreateGpuInstance(device, profile(name)), slices)
os.environ["CUDA_VISIBLE_DEVICES"] = uuids()[1]
"""
        + SEEN
    )

    assert [row[:3] for row in eval(made)] == [(60, 72192, "MIG 3g.71gb")]

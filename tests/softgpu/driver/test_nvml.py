"""NVML for monitors: the values they read, and the events they wait for."""

import os
import signal
import socket
import struct

import pytest

from tandem.softgpu._device import pid_of

MONITOR = """
import pynvml as nv
nv.nvmlInit()
handle = nv.nvmlDeviceGetHandleByIndex(0)
def code(call, *arguments):
    try: call(*arguments)
    except nv.NVMLError as error: return error.value
    return 0
"""


def test_a_monitor_reads_everything_that_a_headless_card_tells(gpu):
    gpu.options["profile"] = "h200"
    gpu.run(
        MONITOR
        + """
idle = nv.nvmlDeviceGetPowerUsage(handle)
limit = nv.nvmlDeviceGetEnforcedPowerLimit(handle)
assert 0 < idle < limit == nv.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
assert nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU) == 30
assert nv.nvmlDeviceGetTemperatureV(handle, nv.NVML_TEMPERATURE_GPU) == 30
slowdown = nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
assert nv.nvmlDeviceGetTemperatureThreshold(handle, slowdown) > 80
assert code(nv.nvmlDeviceGetFanSpeed, handle) == nv.NVML_ERROR_NOT_SUPPORTED
assert nv.nvmlDeviceGetNumFans(handle) == 0
for kind in (nv.NVML_CLOCK_GRAPHICS, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_MEM, nv.NVML_CLOCK_VIDEO):
    assert 0 < nv.nvmlDeviceGetClockInfo(handle, kind) <= nv.nvmlDeviceGetMaxClockInfo(handle, kind)
assert nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == nv.nvmlClocksThrottleReasonGpuIdle
assert nv.nvmlDeviceGetPerformanceState(handle) == 0
assert nv.nvmlDeviceGetMaxPcieLinkGeneration(handle) == 5
assert nv.nvmlDeviceGetCurrPcieLinkWidth(handle) == 16
assert nv.nvmlDeviceGetPcieThroughput(handle, nv.NVML_PCIE_UTIL_TX_BYTES) == 0
assert nv.nvmlDeviceGetEccMode(handle) == [1, 1]
assert nv.nvmlDeviceGetArchitecture(handle) == nv.NVML_DEVICE_ARCH_HOPPER
assert nv.nvmlDeviceGetBrand(handle) == nv.NVML_BRAND_NVIDIA
assert nv.nvmlDeviceGetSerial(handle)
assert nv.nvmlDeviceGetMemoryBusWidth(handle) == 6144
assert nv.nvmlDeviceGetNumaNodeId(handle) == 0
assert sum(bin(word).count("1") for word in nv.nvmlDeviceGetCpuAffinity(handle, 16)) >= 1
assert nv.nvmlDeviceGetAccountingMode(handle) == 0
assert nv.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total > 0
assert nv.nvmlDeviceGetEncoderUtilization(handle)[0] == 0
assert nv.nvmlSystemGetProcessName(os.getpid())
assert nv.nvmlDeviceGetTotalEnergyConsumption(handle) >= 0
assert code(nv.nvmlDeviceGetInforomVersion, handle, 0) == nv.NVML_ERROR_NOT_SUPPORTED
"""
    )


def test_every_error_has_words_of_its_own(gpu):
    gpu.run("""
import ctypes
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlErrorString.restype = ctypes.c_char_p
words = [library.nvmlErrorString(code) for code in range(30)]
assert len(set(words)) == 30
assert words[15] == b"GPU is lost"
assert library.nvmlErrorString(12345) == b"Unknown Error"
version = ctypes.create_string_buffer(80)
assert library.nvmlSystemGetDriverVersion(version, 80) == 1  # not initialised
""")


def test_a_card_for_desktops_has_no_ecc(gpu):
    gpu.options["profile"] = "rtx4090"
    gpu.run(
        MONITOR
        + """
assert code(nv.nvmlDeviceGetEccMode, handle) == nv.NVML_ERROR_NOT_SUPPORTED
assert nv.nvmlDeviceGetSupportedEventTypes(handle) == nv.nvmlEventTypeXidCriticalError
"""
    )


def test_utilisation_is_told_by_process_and_shows_in_power(gpu):
    gpu.run(
        MONITOR
        + """
gpu = Gpu(); word = gpu.word(1)
for _ in range(20): gpu.affine(word, 1, 1, slow=True)
ok(cu.cuCtxSynchronize())
(sample,) = nv.nvmlDeviceGetProcessUtilization(handle, 0)
assert sample.pid == os.getpid()
assert sample.smUtil == nv.nvmlDeviceGetUtilizationRates(handle).gpu > 90
assert code(nv.nvmlDeviceGetProcessUtilization, handle, 1 << 60) == nv.NVML_ERROR_NOT_FOUND
assert nv.nvmlDeviceGetPowerUsage(handle) > 40_000
assert nv.nvmlDeviceGetTemperature(handle, 0) > 60
assert nv.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0
"""
    )


def test_energy_is_idle_power_and_what_computing_takes_above_it(gpu):
    gpu.run(
        MONITOR
        + """
IDLE_W, LIMIT_W = 5, 50  # of the profile
def taken():
    return nv.nvmlDeviceGetTotalEnergyConsumption(handle), libcuda.softgpu_now_ns()
gpu = Gpu(); word = gpu.word(1)
before_mj, began_ns = taken()
libcuda.softgpu_wait_until_ns(began_ns + 1_000_000_000)
idle_mj, idle_ns = taken()
assert abs((idle_mj - before_mj) - IDLE_W * (idle_ns - began_ns) / 1e6) <= 1
for _ in range(200): gpu.affine(word, 1, 1, slow=True)
ok(cu.cuCtxSynchronize())
busy_mj, end_ns = taken()
took_mj, took_ms = busy_mj - idle_mj, (end_ns - idle_ns) / 1e6
assert took_ms > 100
assert 0.95 * LIMIT_W * took_ms <= took_mj <= LIMIT_W * took_ms + 1
"""
    )


EVENTS = """
events = nv.nvmlEventSetCreate()
wanted = nv.nvmlDeviceGetSupportedEventTypes(handle)
nv.nvmlDeviceRegisterEvents(handle, wanted, events)
def waited(timeout_ms=5000):
    with outside(): event = nv.nvmlEventSetWait_v2(events, timeout_ms)
    return event.eventType, event.eventData
"""


@pytest.mark.parametrize(
    ("fault", "status", "told"),
    [
        ("launch:affine@1", "LAUNCH_FAILED", [(8, 13)]),
        ("ecc-uncorrectable:affine@1", "ECC_UNCORRECTABLE", [(2, 0), (8, 48)]),
        ("lost:affine@1", "DEVICE_UNAVAILABLE", [(8, 79)]),
    ],
)
def test_a_fault_sticks_to_its_context_and_is_an_event(gpu, fault, status, told):
    gpu.options["faults"] = fault
    printed = gpu.run(
        MONITOR
        + EVENTS
        + f"""
gpu = Gpu(); word = gpu.word(1)
gpu.affine(word, 2, 1)
print(refused(cu.cuCtxSynchronize()), refused(cu.cuCtxSynchronize()), refused(cu.cuMemAlloc(16)))
print([waited() for _ in range({len(told)})])
assert code(nv.nvmlEventSetWait_v2, events, 0) == nv.NVML_ERROR_TIMEOUT
nv.nvmlEventSetFree(events)
assert code(nv.nvmlEventSetFree, events) == nv.NVML_ERROR_INVALID_ARGUMENT
"""
    )

    assert printed.splitlines() == [" ".join([status] * 3), str(told)]


def test_a_corrected_error_is_counted_and_the_kernel_is_right(gpu):
    gpu.options["faults"] = "ecc-corrected:affine@1"
    printed = gpu.run(
        MONITOR
        + EVENTS
        + """
gpu = Gpu(); word = gpu.word(3)
gpu.affine(word, 2, 1)
print(gpu.read(word), waited())
corrected, volatile = nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_VOLATILE_ECC
memory = nv.NVML_MEMORY_LOCATION_DEVICE_MEMORY
print(nv.nvmlDeviceGetTotalEccErrors(handle, corrected, volatile),
      nv.nvmlDeviceGetTotalEccErrors(handle, 1, volatile),
      nv.nvmlDeviceGetMemoryErrorCounter(handle, corrected, volatile, memory),
      nv.nvmlDeviceGetDetailedEccErrors(handle, corrected, volatile).deviceMemory)
"""
    )

    assert printed.splitlines() == ["[7] (1, 0)", "1 0 1 1"]


def test_after_its_loss_a_device_answers_nothing_else(gpu):
    gpu.options["faults"] = "lost:affine@1"
    gpu.options["devices"] = "2"
    gpu.run(
        MONITOR
        + """
gpu = Gpu(); gpu.affine(gpu.word(1), 2, 1)
assert refused(cu.cuCtxSynchronize()) == "DEVICE_UNAVAILABLE"
for call in (nv.nvmlDeviceGetMemoryInfo, nv.nvmlDeviceGetPowerUsage, nv.nvmlDeviceGetUUID,
             nv.nvmlDeviceGetUtilizationRates, nv.nvmlDeviceGetComputeRunningProcesses):
    assert code(call, handle) == nv.NVML_ERROR_GPU_IS_LOST
assert code(nv.nvmlDeviceGetHandleByIndex, 0) == nv.NVML_ERROR_GPU_IS_LOST
assert nv.nvmlDeviceGetCount() == 2
assert nv.nvmlDeviceGetMemoryInfo(nv.nvmlDeviceGetHandleByIndex(1)).total == 1 << 30
assert refused(cu.cuCtxCreate(None, 0, 0)) == "DEVICE_UNAVAILABLE"
other = ok(cu.cuCtxCreate(None, 0, 1))
ok(cu.cuMemAlloc(16))
"""
    )


def test_what_a_device_that_ends_was_asked_the_next_one_answers(gpu):
    place = gpu.folder / "softgpu.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        child = gpu.start(MONITOR + "print(nv.nvmlDeviceGetName(handle))")
        ending, _ = listener.accept()
        assert ending.recv(4096)  # its hello
        # A WELCOME for client 1; nobody here uses what it says about devices.
        ending.send(struct.pack("<HHIII", 2, 16, 0, 0, 1) + bytes(60_000))
        assert ending.recv(4096)  # the question
        place.unlink()
    ending.close()

    assert child.communicate(timeout=30) == ("Tandem Software GPU (tiny)\n", "")


def test_who_waits_for_events_hears_of_the_end_of_the_device_process(gpu):
    child = gpu.start(
        MONITOR
        + """
events = nv.nvmlEventSetCreate()
nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, events)
print("waiting", flush=True)
print(code(nv.nvmlEventSetWait_v2, events, 60_000) == nv.NVML_ERROR_GPU_IS_LOST)
"""
    )
    assert child.stdout.readline() == "waiting\n"

    os.kill(pid_of(gpu.folder), signal.SIGTERM)

    assert child.communicate(timeout=30) == ("True\n", "")

"""Processes that end at any moment, and a device process that does."""

import os
import signal

import pytest

READY = 'print("ready", flush=True)\n'
BUSY = """
gpu = Gpu(); word = gpu.word(1)
big = ok(cu.cuMemAlloc(64 << 20))
for i in range(100): gpu.affine(word, 3, i, slow=True)
"""


def memory_is_back(status):
    return status["devices"][0]["used_bytes"] == 0


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize(
    "moment",
    ["while True: gpu.affine(word, 3, 1)", "while True: ok(cu.cuMemFree(ok(cu.cuMemAlloc(4096))))"],
)
def test_a_killed_program_gives_its_memory_back_and_others_go_on(gpu, clock, moment):
    gpu.options["clock"] = clock
    other = gpu.start(
        "gpu = Gpu()\n"
        + READY
        + """
with outside(): sys.stdin.readline()
word = gpu.word(7); gpu.affine(word, 2, 1); print(gpu.read(word))
"""
    )
    assert other.stdout.readline() == "ready\n"
    killed = gpu.start(BUSY + READY + moment)
    assert killed.stdout.readline() == "ready\n"

    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    out, err = other.communicate("go\n", timeout=60)
    assert out == "[15]\n", err
    gpu.wait_until(memory_is_back)


def test_a_program_may_end_with_work_in_flight(gpu):
    gpu.options["clock"] = "real"
    gpu.run(BUSY)

    gpu.wait_until(memory_is_back)


def test_calls_fail_when_the_device_process_dies(gpu):
    gpu.options["clock"] = "real"
    child = gpu.start(
        BUSY
        + READY
        + """
print(refused(cu.cuCtxSynchronize()), refused(cu.cuMemAlloc(16)))
"""
    )
    assert child.stdout.readline() == "ready\n"

    (device,) = list(device_processes(gpu.folder))
    os.kill(device, signal.SIGKILL)

    out, err = child.communicate(timeout=30)
    assert out == "DEVICE_UNAVAILABLE DEVICE_UNAVAILABLE\n", err


def device_processes(folder):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"tandem-softgpu") and str(folder).encode() in words:
            yield int(pid)


def test_without_a_device_program_cuinit_says_so(gpu, tmp_path):
    missing = str(tmp_path / "missing")
    child = gpu.start("print(refused(cu.cuInit(0)))", TANDEM_SOFTGPU_BIN=missing)
    out, err = child.communicate(timeout=30)

    assert out == "SYSTEM_NOT_READY\n"
    assert missing in err


def test_a_program_that_catches_its_own_faults_still_does(gpu):
    child = gpu.start("""
import faulthandler; faulthandler.enable()
gpu = Gpu(); gpu.affine(gpu.word(1), 2, 0); ok(cu.cuCtxSynchronize())
ctypes.string_at(8)
""")
    err = child.communicate(timeout=30)[1]

    assert child.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in err


def test_a_wrong_setting_is_named_to_the_program_that_starts_the_device(gpu):
    gpu.options["profile"] = "h20"
    child = gpu.start("print(cu.cuInit(0)[0].name)")

    out, err = child.communicate(timeout=60)

    assert out.strip() == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert "TANDEM_SOFTGPU_PROFILE is 'h20', must be one of h200, a100, rtx4090, tiny, mini" in err
    assert "(did you mean 'h200'?)" in err


def test_nothing_runs_in_a_stream_after_a_kernel_that_failed(gpu):
    out = gpu.run("""
gpu = Gpu()
stream = ok(cu.cuStreamCreate(1))
host = ok(cu.cuMemHostAlloc(4, 0))
word = ctypes.c_uint32.from_address(host)
types = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
gpu.launch("affine", (host, 0, 1), types, stream=stream)
gpu.launch("affine", (8, 1, 1), types, stream=stream)  # no memory of anybody's
gpu.launch("affine", (host, 0, 7), types, stream=stream)
print(refused(cu.cuStreamSynchronize(stream)), word.value)
""")

    assert out == "ILLEGAL_ADDRESS 1"


def test_a_context_takes_every_kind_of_its_memory_with_it(gpu):
    program = """
ok(cu.cuInit(0)); device = ok(cu.cuDeviceGet(0))
context = ok(cu.cuCtxCreate(None, 0, device))
stream = ok(cu.cuStreamCreate(1))
ok(cu.cuMemAlloc(1 << 20)); ok(cu.cuMemAllocPitch(100, 100, 4)); ok(cu.cuMemAllocManaged(4096, 1))
ok(cu.cuMemAllocAsync(1 << 20, stream)); ok(cu.cuIpcGetMemHandle(ok(cu.cuMemAlloc(4096))))
ok(cu.cuMemFreeAsync(ok(cu.cuMemAlloc(4096)), stream))
ok(cu.cuCtxDestroy(context)); print("ready", flush=True)
with outside(): sys.stdin.readline()
"""
    child = gpu.start(program)
    assert child.stdout.readline() == "ready\n", child.stderr.read()

    gpu.wait_until(memory_is_back)
    child.communicate("\n")

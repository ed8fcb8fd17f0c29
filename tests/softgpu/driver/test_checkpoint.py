"""Checkpoints on the software GPU: waiting, timeouts, room, and processes that go away."""

import pytest

READY = 'print("ready", flush=True)\n'
WAIT = "with outside(): sys.stdin.readline()\n"
HOLD = "gpu = Gpu(); word = gpu.word(1); big = ok(cu.cuMemAlloc(300 << 20))\n"


def target(gpu, program):
    child = gpu.start(program)
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    return child


def finish(child):
    out, err = child.communicate("\n", timeout=60)
    assert child.returncode == 0, err
    return out.strip()


def test_a_lock_waits_for_the_work_and_gives_up_after_its_timeout(gpu):
    gpu.options["start_clients"] = "2"  # else the work is done before anybody looks
    busy = gpu.start(
        "gpu = Gpu(); word = gpu.word(1)\n"
        "for _ in range(10): gpu.affine(word, 1, 1, slow=True)\n" + WAIT
    )
    printed = gpu.run(f"""
gpu = Gpu(); gpu.affine(gpu.word(1), 1, 1, slow=True); ok(cu.cuCtxSynchronize())
pid = {busy.pid}
args = cu.CUcheckpointLockArgs(); args.timeoutMs = 20
print(refused(cu.cuCheckpointProcessLock(pid, args)))
print(ok(cu.cuCheckpointProcessGetState(pid)).name)
ok(cu.cuCheckpointProcessLock(pid, None))
print(ok(cu.cuCheckpointProcessGetState(pid)).name)
""")

    finish(busy)
    assert printed.splitlines() == [
        "NOT_READY",
        "CU_PROCESS_STATE_RUNNING",
        "CU_PROCESS_STATE_LOCKED",
    ]
    assert sum(row["last"] for row in gpu.timeline()) == 11


def test_what_was_given_up_must_fit_again(gpu):
    held = target(gpu, HOLD + READY + WAIT + "print(gpu.read(word))\n")
    printed = gpu.run(f"""
gpu = Gpu(); pid = {held.pid}
ok(cu.cuCheckpointProcessLock(pid, None)); ok(cu.cuCheckpointProcessCheckpoint(pid, None))
mine = ok(cu.cuMemAlloc(900 << 20))
print(refused(cu.cuCheckpointProcessRestore(pid, None)))
print(ok(cu.cuCheckpointProcessGetState(pid)).name)
ok(cu.cuMemFree(mine))
ok(cu.cuCheckpointProcessRestore(pid, None)); ok(cu.cuCheckpointProcessUnlock(pid, None))
""")

    assert finish(held) == "[1]"
    assert printed.splitlines() == ["OUT_OF_MEMORY", "CU_PROCESS_STATE_CHECKPOINTED"]


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_calls_of_a_locked_process_wait_until_it_is_unlocked(gpu, clock):
    gpu.options["clock"] = clock
    gpu.run("""
gpu = Gpu(); word = gpu.word(1); order = []
pid = os.getpid()
ok(cu.cuCheckpointProcessLock(pid, None))
def work():
    ok(cu.cuCtxSetCurrent(gpu.context))
    gpu.affine(word, 2, 3); order.append("worked")
thread = threading.Thread(target=work); thread.start()
order.append(ok(cu.cuCheckpointProcessGetState(pid)).name)
ok(cu.cuCheckpointProcessUnlock(pid, None))
with outside(): thread.join()
assert order == ["CU_PROCESS_STATE_LOCKED", "worked"], order
assert gpu.read(word) == [5]
""")


def test_a_killed_process_leaves_nothing_behind_in_any_state(gpu):
    held = target(gpu, HOLD + READY + WAIT)
    other = gpu.start(f"""
gpu = Gpu(); pid = {held.pid}
ok(cu.cuCheckpointProcessLock(pid, None)); ok(cu.cuCheckpointProcessCheckpoint(pid, None))
print("ready", flush=True)
with outside(): sys.stdin.readline()
while (state := cu.cuCheckpointProcessGetState(pid))[0] == cu.CUresult.CUDA_SUCCESS: pass
print(refused(state), refused(cu.cuCheckpointProcessRestore(pid, None)))
ok(cu.cuMemAlloc(1000 << 20))
""")
    assert other.stdout.readline() == "ready\n", other.stderr.read()
    held.kill()
    held.communicate()

    assert finish(other) == "INVALID_VALUE INVALID_VALUE"


def test_wrong_arguments_are_refused(gpu):
    gpu.run("""
assert refused(cu.cuCheckpointProcessGetState(os.getpid())) == "INVALID_VALUE"  # no GPU in use
gpu = Gpu(); pid = os.getpid()
for nobody in (0, -1, 1):
    assert refused(cu.cuCheckpointProcessLock(nobody, None)) == "INVALID_VALUE"
args = cu.CUcheckpointLockArgs()
ctypes.memset(args.getPtr() + 8, 1, 8)  # what is reserved has to be zero
assert refused(cu.cuCheckpointProcessLock(pid, args)) == "INVALID_VALUE"
pair = cu.CUcheckpointGpuPair()
pair.oldUuid = ok(cu.cuDeviceGetUuid(gpu.device))
restore = cu.CUcheckpointRestoreArgs(); restore.gpuPairs = [pair]; restore.gpuPairsCount = 1
assert refused(cu.cuCheckpointProcessRestore(pid, restore)) == "NOT_SUPPORTED"
""")

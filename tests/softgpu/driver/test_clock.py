"""Virtual time: who lets it pass, and that a run repeats exactly."""

from itertools import pairwise

SLOW = "gpu = Gpu(); word = gpu.word(1); s = ok(cu.cuStreamCreate(1))\n"


def test_two_runs_have_the_same_timeline(gpu, tmp_path):
    program = (
        SLOW
        + """
t = ok(cu.cuStreamCreate(0)); e = ok(cu.cuEventCreate(0))
for i in range(20):
    gpu.affine(word, 3, i, stream=s, slow=i % 5 == 0)
    gpu.affine(word, 5, i, stream=t)
    if i % 7 == 0: ok(cu.cuEventRecord(e, s)); ok(cu.cuStreamWaitEvent(t, e, 0))
    if i % 11 == 0: ok(cu.cuStreamSynchronize(t))
ok(cu.cuCtxSynchronize())
"""
    )
    rows = []
    for run in ("a", "b"):
        gpu.folder = tmp_path / run
        gpu.folder.mkdir()
        gpu.run(program)
        rows.append([{k: v for k, v in row.items() if k != "pid"} for row in gpu.timeline()])

    assert len(rows[0]) == 40
    assert rows[0] == rows[1]


def test_time_stands_still_while_the_program_computes_on_the_cpu(gpu):
    out = gpu.run(
        SLOW
        + """
before = libcuda.softgpu_now_ns()
sum(range(10**6))
print(libcuda.softgpu_now_ns() - before)
"""
    )

    assert out == "0"


def test_a_thread_can_wait_for_a_time(gpu):
    out = gpu.run(
        SLOW
        + """
at = libcuda.softgpu_now_ns() + 5_000_000
libcuda.softgpu_wait_until_ns(at)
print(libcuda.softgpu_now_ns() - at)
"""
    )

    assert out == "0"


LOOKER = (
    SLOW
    + """
start = libcuda.softgpu_now_ns()
begun = threading.Event()
def other():
    libcuda.softgpu_wait_until_ns(start)  # from here on it takes part
    begun.set()
    libcuda.softgpu_wait_until_ns(start + 3_000_000)
    libcuda.softgpu_wait_for_change(0, start + 5_000_000, only_looked)
thread = threading.Thread(target=other)
thread.start()
begun.wait()  # not outside: time has to stand still until we look, too
looks = []
while libcuda.softgpu_now_ns() < start + 8_000_000:
    libcuda.softgpu_wait_for_change(50_000, start + 8_000_000, 1)
    looks.append(libcuda.softgpu_now_ns() - start)
with outside():
    thread.join()
print(*sorted({look for look in looks if look >= 1_000_000}))
"""
)


def test_who_looks_for_a_change_does_so_when_somebody_was_at_work(gpu):
    assert gpu.run("only_looked = 0\n" + LOOKER) == "3000000 5000000 8000000"


def test_who_looks_for_a_change_does_not_because_another_looked(gpu):
    assert gpu.run("only_looked = 1\n" + LOOKER) == "5000000 8000000"


def test_an_observer_that_is_called_for_comes_back_before_its_time(gpu):
    out = gpu.run("""
libcuda.softgpu_observe()
start = libcuda.softgpu_now_ns()
came = 0
for _ in range(400):  # naps that end by themselves would take longer than a program may
    libcuda.softgpu_end_nap()
    came += libcuda.softgpu_wait_for_change(1, start + 10**15, 1)
print(came)
""")

    assert out == "0"


def test_a_kernel_runs_while_a_thread_waits_for_a_time(gpu):
    out = gpu.run(
        SLOW
        + """
gpu.affine(word, 2, 0, stream=s, slow=True)
libcuda.softgpu_wait_until_ns(libcuda.softgpu_now_ns() + 10_000_000_000)
print(cu.cuStreamQuery(s)[0] == 0)
"""
    )

    assert out == "True"


def test_time_passes_while_one_thread_joins_another(gpu):
    out = gpu.run(
        SLOW
        + """
def work():
    ok(cu.cuCtxSetCurrent(gpu.context))
    gpu.affine(word, 2, 0, slow=True)
    ok(cu.cuCtxSynchronize())
thread = threading.Thread(target=work)
thread.start()
with outside():
    thread.join()
print(gpu.read(word))
"""
    )

    assert out == "[2]"


def test_two_programs_share_one_clock(gpu):
    gpu.options["start_clients"] = "2"
    program = (
        SLOW
        + """
gpu.affine(word, 2, 0, stream=s, slow=True)
ok(cu.cuStreamSynchronize(s))
"""
    )
    children = [gpu.start(program) for _ in range(2)]
    for child in children:
        assert child.communicate(timeout=60)[1] == ""

    rows = sorted(gpu.timeline(), key=lambda row: row["t_start_ns"])
    assert len({row["pid"] for row in rows}) == 2
    for earlier, later in pairwise(rows):
        assert earlier["t_end_ns"] <= later["t_start_ns"]


def test_an_observer_does_not_wait_for_as_long_as_time_stands_still(gpu):
    worker = gpu.start(SLOW + "print('computes', flush=True); input()")
    assert worker.stdout.readline() == "computes\n"

    out = gpu.run(
        """
libcuda.softgpu_observe()
at = libcuda.softgpu_now_ns() + 10_000_000
libcuda.softgpu_wait_until_ns(at)
print(libcuda.softgpu_now_ns() < at)
"""
    )

    assert out == "True"  # the worker still computes, so time cannot pass
    worker.communicate("\n", timeout=60)

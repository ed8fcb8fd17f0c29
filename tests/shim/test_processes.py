"""An attached job's processes, threads and descriptors, and what it does with them."""

import os
import platform
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shim_daemon import Attached, FakeDaemon, Job, monotonic_ns
from shim_support import Preload

from tandem import _native


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


@pytest.fixture
def job(preload: Preload, daemon: FakeDaemon) -> Iterator[Job]:
    with Job(preload.environment()) as started:
        yield started


def attached(job: Job, daemon: FakeDaemon, *, hold: bool = False) -> Attached:
    """Let the job launch once; return the daemon's end of its channel."""
    job.start("launch()")
    taken = daemon.attach()
    assert job.result() == 0
    taken.until("busy", False)
    if hold:
        taken.process.set_gate(hold=True)
    return taken


# membarrier(2) on x86-64: the commands that the process has registered for.
REGISTERED_FOR = "ctypes.CDLL(None).syscall(324, 1 << 9, 0, 0)"
PRIVATE_EXPEDITED = 1 << 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls the kernel by number")
def test_a_job_in_a_set_of_sms_has_the_barriers_that_its_cheap_locks_need(
    job: Job, daemon: FakeDaemon
) -> None:
    job.start("launch()")
    daemon.attach(sms={"first": 0, "count": 4, "group_sms": 8})
    assert job.result() == 0
    if job.do(REGISTERED_FOR) == -1:
        pytest.skip("this kernel (before 6.3) does not tell, or may not be asked")

    while not int(str(job.do(REGISTERED_FOR))) & PRIVATE_EXPEDITED:
        pass  # if it never happens, the test's timeout ends it


CHILDREN = {
    "exits": "in_child(lambda: 0)",
    "executes": "in_child(lambda: os.execv('/bin/true', ['true']))",
    "is spawned": "os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)[1]",
    "is spawned by vfork": "__import__('subprocess').call('/bin/true')",
    "is a shell": "os.system('true')",
}


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN)
def test_a_child_without_cuda_changes_nothing(child: str, job: Job, daemon: FakeDaemon) -> None:
    parent = attached(job, daemon)

    assert job.do(child) == 0

    assert job.do("launch()") == 0
    assert parent.until("busy", False).live_slots == 1
    assert not daemon.has_caller()
    assert job.end() == ""


# Like `in_child`, but by the system call, so no fork handler runs.
RAW_CHILD = """
def in_raw_child(body):
    pid = shim.syscall(ctypes.c_long(56), ctypes.c_long(17), None, None, None, None)
    if pid == 0:
        os._exit(body())
    return os.waitpid(pid, 0)[1]
"""
CALLS = {
    "launches": "launch()",
    "allocates": "alloc(4096)[0]",
    "frees": "free({address})",
    "marks": "shim.tandem_mark_v1(0, ctypes.c_uint64(1), ctypes.c_uint64(0)) * 0",
    "ends in exit handlers": "shim.exit(launch())",
    "ends its thread": "shim.pthread_exit(launch() or None)",
    "forks": "in_child(lambda: 0)",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls the kernel by number")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_child_made_without_fork_handlers_has_the_driver_alone(
    call: str, job: Job, daemon: FakeDaemon
) -> None:
    parent = attached(job, daemon)
    result, address = job.do("alloc(4096)")  # type: ignore[misc]
    assert result == 0
    job.do(f"exec({RAW_CHILD!r}, globals())")
    before = parent.until("busy", False)
    parent.process.set_gate(hold=True)  # the child does not know of it

    assert job.do(f"in_raw_child(lambda: {call.format(address=address)})") == 0

    parent.process.set_gate(hold=False)
    after = parent.snapshot()
    assert (after.launches, after.device_bytes) == (before.launches, before.device_bytes)
    assert not daemon.has_caller()
    assert job.do("launch()") == 0
    assert parent.until("busy", False).launches == before.launches + 1


def test_a_childs_exit_leaves_the_parents_lease(job: Job, daemon: FakeDaemon) -> None:
    parent = attached(job, daemon)

    job.start("in_child(launch)")
    of_child = daemon.attach()

    assert job.result() == 0
    assert of_child.connection.recv(1) == b""
    parent.process.set_gate(hold=True)
    job.start("launch()")
    parent.until("waiting_threads", 1)
    parent.process.set_gate(hold=False)
    assert job.result() == 0


def test_the_lease_ends_with_the_parent_though_its_child_lives_on(
    job: Job, daemon: FakeDaemon
) -> None:
    parent = attached(job, daemon)
    child = job.do("os.posix_spawn('/bin/sleep', ['sleep', '60'], os.environ)")

    job.kill()

    assert parent.connection.recv(1) == b""
    subprocess.run(["kill", str(child)], check=True)


def test_a_program_that_executes_another_attaches_anew(job: Job, daemon: FakeDaemon) -> None:
    first = attached(job, daemon)

    job.start("os.execv(sys.executable, [sys.executable, '-S', '-c', LOOP])")
    assert first.connection.recv(1) == b""
    attached(job, daemon)

    assert job.end() == ""


MULTIPROCESSING = """
import ctypes, multiprocessing, sys
def launch():
    cu = ctypes.CDLL("libcuda.so.1")
    sys.exit(cu.cuLaunchKernel(ctypes.c_void_p(9), 4, 1, 1, 32, 1, 1, 0, None, None, None))
if __name__ == "__main__":
    method = multiprocessing.get_context(sys.argv[1])
    workers = [method.Process(target=launch) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    sys.exit(sum(worker.exitcode for worker in workers))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_attach_each_on_its_own(
    method: str, preload: Preload, daemon: FakeDaemon, tmp_path: Path
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(MULTIPROCESSING)
    environment = preload.environment(FAKE_CONTEXT="1")
    with subprocess.Popen(["python3", "-S", program, method], env=environment) as process:
        for _ in range(2):
            daemon.attach()

        assert process.wait(20) == 0
    assert not daemon.has_caller()


ENDS = {
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "SIGTERM": ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
    "exit of libc": ("shim.exit(5)", 5),
    "abort": ("os.abort()", -signal.SIGABRT),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS)
def test_a_job_ends_as_it_wants_while_a_thread_is_held(
    end: str, code: int, job: Job, daemon: FakeDaemon
) -> None:
    held = attached(job, daemon, hold=True)
    job.do("aside(launch)")
    held.until("waiting_threads", 1)

    job.start(end)

    assert job.wait() == code
    assert held.connection.recv(1) == b""


SET_HANDLER = "__import__('signal').signal(15, lambda *_: os._exit(7))"
TRIES = 60  # a thread does not notice a signal between two of its naps of 20 ms


def test_a_handler_of_python_runs_while_its_thread_is_held(job: Job, daemon: FakeDaemon) -> None:
    held = attached(job, daemon, hold=True)
    job.start(f"({SET_HANDLER}, launch())")
    held.until("waiting_threads", 1)

    assert any(job.ended_by(signal.SIGTERM, within_s=1) for _ in range(TRIES))

    assert job.wait() == 7


def test_a_held_main_thread_does_not_keep_another_from_exiting(
    job: Job, daemon: FakeDaemon, tmp_path: Path
) -> None:
    held = attached(job, daemon, hold=True)
    os.mkfifo(tmp_path / "word")
    job.do(f"aside(lambda: shim.exit(len(open({str(tmp_path / 'word')!r}).read())))")
    job.start("launch()")
    held.until("waiting_threads", 1)

    (tmp_path / "word").write_text("leave!")

    assert job.wait() == 6


PER_THREAD_STREAMS = r"""
#include <cuda.h>
#include <stdio.h>
#include <atomic>
#include <thread>
#include <vector>
extern "C" CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream, void**, void**);
int main(int, char** arguments) {
  const int count = atoi(arguments[1]);
  const bool together = arguments[2][0] == 't';
  std::atomic<int> wrong{0};
  const auto launch = [&] {
    if (cuLaunchKernel_ptsz((CUfunction)9, 4, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr))
      ++wrong;
  };
  if (together) {
    launch();
    puts("attached");
    fflush(stdout);
    getchar();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back(launch);
    if (!together) threads[i].join();
  }
  if (together) for (auto& thread : threads) thread.join();
  printf("%d\n", wrong.load());
  fflush(stdout);
  getchar();
}
"""


@pytest.fixture
def per_thread(program: Callable[..., Path], preload: Preload, cuda_include: Path) -> Path:
    return program(PER_THREAD_STREAMS, "-isystem", str(cuda_include), str(preload.driver))


def start(path: Path, *arguments: str, preload: Preload) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [path, *arguments],
        env=preload.environment(FAKE_CONTEXT="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """Return the process's next line."""
    assert process.stdout
    return process.stdout.readline()


def test_the_streams_of_threads_that_ended_take_no_room(
    per_thread: Path, preload: Preload, daemon: FakeDaemon
) -> None:
    with start(per_thread, "600", "one by one", preload=preload) as process:
        taken = daemon.attach()
        assert said(process) == "0\n"

        # There were more streams than slots, and every launch was counted.
        assert taken.until("busy", False).live_slots == 0
        assert taken.snapshot().launches == 600
        process.communicate("\n")


def test_hundreds_of_threads_wait_at_the_gate_and_go(
    per_thread: Path, preload: Preload, daemon: FakeDaemon
) -> None:
    with start(per_thread, "300", "together", preload=preload) as process:
        assert process.stdin
        taken = daemon.attach()
        assert said(process) == "attached\n"  # else the first launch might wait, too
        taken.process.set_gate(hold=True)
        process.stdin.write("\n")
        process.stdin.flush()
        while taken.snapshot().waiting_threads != 300:
            taken.process.stamp(tick_ns=monotonic_ns())  # the daemon lives, however long it takes

        taken.process.set_gate(hold=False)

        assert said(process) == "0\n"
        assert taken.until("waiting_threads", 0)
        process.communicate("\n")


def test_a_job_may_unload_the_driver_and_load_it_again(job: Job, daemon: FakeDaemon) -> None:
    attached(job, daemon)

    job.do("__import__('_ctypes').dlclose(cu._handle)")

    assert job.do("ctypes.CDLL('libcuda.so.1').cuCtxSynchronize()") == 0
    assert job.do("launch()") == 0
    assert job.end() == ""


def test_a_job_that_closes_every_descriptor_keeps_what_it_opens_afterwards(
    job: Job, daemon: FakeDaemon, tmp_path: Path
) -> None:
    attached(job, daemon)
    paths = [tmp_path / f"file{i}" for i in range(12)]

    job.do("os.closerange(3, 4096)")
    opened = f"[open({str(tmp_path)!r} + f'/file{{i}}', 'x+b', buffering=0) for i in range(12)]"
    job.do(f"globals().update(files={opened}) or [f.fileno() for f in files]")
    second = daemon.attach()  # it noticed, and re-attached on its own
    second.until_in_use()
    job.do("[launch(function=f) for f in range(30)]")

    assert job.do("[f.write(b'mine') for f in files]") == [4] * 12
    assert job.do("in_child(lambda: sum(f.write(b'too') for f in files) - 36)") == 0
    assert [path.read_bytes() for path in paths] == [b"minetoo"] * 12
    assert job.end() == ""


@pytest.mark.parametrize("free", [0, 1, 3])
def test_a_job_without_free_descriptors_runs_unshared_until_it_has_some(
    free: int, job: Job, daemon: FakeDaemon
) -> None:
    limit = "__import__('resource').setrlimit(__import__('resource').RLIMIT_NOFILE, ({}, 4096))"
    used = job.do("__import__('resource') and len(os.listdir('/proc/self/fd')) - 1")
    job.do(limit.format(used + free))

    job.start("launch()")
    if free:
        daemon.answer(lambda c: daemon.offer(c, _native.Process(process_id=1, job_id=1)))
    assert job.result() == 0
    assert job.do("shim.tandem_is_managed_v1()") == 0

    job.do(limit.format(4096))
    daemon.attach().until_in_use()
    assert job.end() == (
        "tandem: running unshared: this process has no descriptors left for the daemon's pages "
        "(ulimit -n)\n"
    )


@pytest.mark.parametrize("room", [1 << 16, 6 << 20], ids=["maps", "thread"])
def test_a_job_without_address_space_runs_unshared(room: int, job: Job, daemon: FakeDaemon) -> None:
    resource = "__import__('resource')"
    pages = "int(open('/proc/self/statm').read().split()[0])"
    job.do(f"{resource}.setrlimit({resource}.RLIMIT_AS, ({pages} * 4096 + {room},) * 2)")

    job.start("launch()")
    daemon.answer(lambda c: daemon.offer(c, _native.Process(process_id=1, job_id=1)))

    assert job.result() == 0
    assert job.do("launch()") == 0
    assert job.do("shim.tandem_is_managed_v1()") == 0
    assert len(job.end().splitlines()) == 1


def test_children_without_the_preload_run_bare(job: Job, daemon: FakeDaemon) -> None:
    attached(job, daemon)
    child = "__import__('subprocess').run([sys.executable, '-S', '-c', LOOP], input='launch()', "
    bare = "env={k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}, text=True, "

    assert job.do(child + bare + "capture_output=True).stdout") == "0\n"
    assert not daemon.has_caller()

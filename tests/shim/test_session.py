"""Attaching, gate, fail-open, memory limit, fork: a real process against a daemon's socket."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shim_daemon import CommandPage, FakeDaemon, Job
from shim_support import Preload

from tandem import _native
from tandem._environment import launch_group

OUT_OF_MEMORY = 2
WINDOW = 2  # WaitReason
MIB = 1 << 20
LAUNCH, SYNC, EVENT_RECORD, EVENT_WAIT, SEGMENT = 1, 6, 7, 8, 12  # RecordKind
WRITES = "cu.fake_count(b'cuStreamWriteValue64_v2')"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


def test_the_first_launch_is_already_managed_and_carries_the_requests(
    preload: Preload, daemon: FakeDaemon
) -> None:
    wishes = {
        "TANDEM_PRIORITY": "latency",
        "TANDEM_MEMORY": "40%",
        "TANDEM_MEMORY_MIN": "64MiB",
        "TANDEM_PERSISTENT": "3MiB",
        "TANDEM_EPHEMERAL": "5MiB",
        "TANDEM_PREEMPTIBLE": "0",
        "TANDEM_SM": "30%",
        "TANDEM_ISOLATION": "mps+green",
        "TANDEM_SLO": "p99=50ms",
        "TANDEM_IDLE_RELEASE": "1min",
        "TANDEM_NAME": "llama",
        "TANDEM_GROUP": "g",
        "TANDEM_JOB_ID": "j-7f3a",
    }
    with Job(preload.environment(**wishes)) as job:
        job.start("launch()")
        attached = daemon.attach()
        result = job.result()

        request = attached.hello.request
        assert result == 0
        assert (request.job_class, request.sm_percent, request.name) == (1, 30, "llama")
        assert request.memory_bytes == 400 * MIB  # of the driver's 1000 MiB
        assert request.memory_min_bytes == 64 * MIB
        assert attached.hello.promise == (3 * MIB, 5 * MIB)
        assert attached.hello.space == (0, 3)
        assert attached.hello.idle_release_s == 60
        assert request.preemptible == 2  # no
        assert request.slo_p99_ns == 50_000_000
        assert attached.hello.job_id == 0x7F3A
        assert attached.hello.device_uuids == [b"\x07" * 16]
        assert attached.until("busy", False).live_slots == 1
        assert job.do("shim.tandem_is_managed_v1()") == 1
        assert job.end() == ""


@pytest.mark.parametrize(
    ("said", "seconds"), [("never", 2**32 - 1), ("1500ms", 2), ("1d", 86_400), ("soon", 0)]
)
def test_idleness_is_said_in_whole_seconds(
    said: str, seconds: int, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(TANDEM_IDLE_RELEASE=said)) as job:
        assert job.attach_to(daemon).hello.idle_release_s == seconds
        assert job.end().count("is not a time like 30s") == (said == "soon")


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("launch", "group"),
    [
        (TORCHRUN, "torchrun:29500:none"),
        (TORCHRUN | {"MASTER_PORT": "29501"}, "torchrun:29501:none"),
        ({"TORCHELASTIC_RUN_ID": "r"}, "torchrun::r"),
        (STEP | TORCHRUN, "torchrun:29500:none"),  # the finer of the two
        (STEP, "slurm:7.0"),
        (STEP | {"SLURM_STEP_NUM_TASKS": "1"}, ""),  # a shell: it starts any programs
        ({"SLURM_JOB_ID": "7"}, ""),  # a batch script, likewise
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, ""),
        ({"TORCHELASTIC_RUN_ID": ""}, ""),
        ({"TORCHELASTIC_RUN_ID": "\n\x7f\udcff"}, "torchrun::???"),  # else refused
        ({"TORCHELASTIC_RUN_ID": "x" * 90}, "torchrun::" + "x" * 53),
    ],
)
def test_processes_of_one_launch_ask_for_one_group(
    launch: dict[str, str], group: str, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(**launch)) as job:
        told = job.attach_to(daemon).hello.request.group

    assert told == group
    assert launch_group(launch)[:63] == group, "`tandem run` says the same"


def test_a_group_that_was_said_goes_before_that_of_the_launch(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(TANDEM_GROUP="mine", **TORCHRUN)) as job:
        assert job.attach_to(daemon).hello.request.group == "mine"


def test_launches_leave_records_and_markers(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)
        attached.records()
        before = job.do(WRITES)

        job.do("[launch() for _ in range(50)]")
        attached.until("busy", False)

        markers = int(str(job.do(WRITES))) - int(str(before))
        kinds: list[int] = []
        while kinds.count(SEGMENT) < markers:  # the helper thread may still be writing the last one
            kinds += [record[8] for record in attached.records()]
        assert (kinds.count(LAUNCH), kinds.count(SEGMENT)) == (50, markers)
        assert markers > 2
        assert job.do("cu.fake_count(b'cuMemHostRegister_v2')") == 1


def test_a_closed_gate_holds_a_launch_and_an_open_one_lets_it_go(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        attached = daemon.attach(hold=True)
        attached.until("waiting_threads", 1)
        held = attached.snapshot()

        attached.process.set_gate(hold=False)
        result = job.result()

        assert (held.wait_reason, result) == (1, 0)
        assert job.do("cu.fake_count(b'cuLaunchKernel')") == 1
        assert attached.until("waiting_threads", 0).wait_total_ns[1] > 0


def test_a_daemon_that_dies_lets_a_waiting_thread_go(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        attached = daemon.attach(hold=True)
        attached.until("waiting_threads", 1)

        attached.connection.close()

        assert job.result() == 0
        assert job.end() == ""


def test_a_daemon_that_hangs_lets_a_waiting_thread_go(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        attached = daemon.attach(hold=True)
        attached.until("waiting_threads", 1)

        attached.process.set_stale(stale_ns=1)

        assert job.result() == 0
        assert attached.until("ungated", True).waiting_threads == 0


def test_a_lost_daemon_is_found_again(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        first = daemon.attach()
        job.result()

        first.connection.close()
        second = daemon.attach(hold=True)
        second.until_in_use()
        job.start("launch()")
        second.until("waiting_threads", 1)
        second.process.set_gate(hold=False)

        assert job.result() == 0


def test_a_job_that_nobody_registered_comes_back_by_its_number(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        first = job.attach_to(daemon)

        first.connection.close()
        second = daemon.attach()

        assert (first.hello.job_id, second.hello.job_id) == (0, 1)


@pytest.mark.parametrize(
    "answer",
    [
        _native.encode_refused(code=6, reason="it is leaving"),
        b"garbage",
        b"\0" * 4000,
        _native.encode_welcome(process_id=1, job_id=1, clock=0),  # without its descriptors
        _native.encode_welcome(process_id=1, job_id=1, clock=1),
        b"",
    ],
    ids=["leaving", "garbage", "zeros", "no_descriptors", "other_clock", "closed"],
)
def test_any_other_answer_leaves_the_job_alone(
    answer: bytes, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        daemon.answer(lambda c: c.send(answer) if answer else c.close())

        assert job.result() == 0
        assert job.do("shim.tandem_is_managed_v1()") == 0
        assert job.end() == ""


def test_who_is_refused_says_why_once_and_asks_less_and_less_often(
    preload: Preload, daemon: FakeDaemon
) -> None:
    refused = _native.encode_refused(code=3, reason="nobody knows you")
    with Job(preload.environment()) as job:
        job.start("launch()")
        asked_s = []
        for _ in range(4):
            connection, *_ = daemon.answer(
                lambda c: (asked_s.append(time.monotonic()), c.send(refused))
            )
            connection.close()

        assert job.result() == 0
        assert asked_s[-1] - asked_s[0] >= 0.25 + 0.5 + 1  # the shortest pauses between them
        said = "tandem: running unshared, the daemon refuses this process: nobody knows you\n"
        assert job.end() == said


def test_who_is_refused_before_its_hello_is_read_says_why(
    preload: Preload, daemon: FakeDaemon
) -> None:
    refused = _native.encode_refused(code=4, reason="there are too many")
    with Job(preload.environment()) as job:
        job.start("launch()")
        daemon.refuse_unread(refused)

        assert job.result() == 0
        said = "tandem: running unshared, the daemon refuses this process: there are too many\n"
        assert job.end() == said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("off", ""),
        ("warn", "tandem: TANDEM_PRIORITY 'high' is not latency, normal or batch; ignoring it\n"),
        ("debug", "tandem: TANDEM_LOG 'debug' is neither warn nor off; using warn\n"),
    ],
)
def test_its_one_line_can_be_done_without(
    asked: str, said: str, preload: Preload, daemon: FakeDaemon
) -> None:
    wrong = preload.environment(TANDEM_LOG=asked, TANDEM_PRIORITY="high")
    with Job(wrong) as job:
        job.attach_to(daemon)

        assert job.end() == said


@pytest.mark.parametrize(
    "unread",
    [
        "os.close(pipe[0])",
        "(fcntl.fcntl(2, fcntl.F_SETPIPE_SZ, 4096), os.write(2, b'-' * 4096))",
    ],
    ids=["gone", "full"],
)
def test_its_one_line_neither_ends_nor_holds_a_job_whose_output_nobody_reads(
    unread: str, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(TANDEM_PRIORITY="high")) as job:
        job.do("[globals().update({m: __import__(m)}) for m in ('fcntl', 'signal')]")
        job.do("globals().update(pipe=os.pipe())")
        job.do("(os.dup2(pipe[1], 2), os.close(pipe[1]))")
        job.do("signal.signal(signal.SIGPIPE, signal.SIG_DFL) and None")
        job.do(unread)
        job.attach_to(daemon)

        assert job.do("launch()") == 0


@pytest.mark.parametrize("seed", [*range(6), None])
def test_garbage_in_the_command_page_neither_crashes_nor_holds_a_job(
    seed: int | None, preload: Preload, daemon: FakeDaemon
) -> None:
    generator = random.Random(seed)
    with Job(preload.environment()) as job:
        job.start("launch()")
        process = _native.Process(process_id=41, job_id=1)
        page = CommandPage(process)
        connection, *_ = daemon.answer(lambda c: daemon.welcome(c, process, command_fd=page.fd))
        page.fill(b"\xff" * 4096 if seed is None else generator.randbytes(4096))

        assert job.result() == 0
        assert job.do("[launch(function=f) for f in range(20)]") == [0] * 20
        assert job.do("cu.cuCtxSynchronize()") == 0
        assert job.do("alloc(4096)[0]") in (0, OUT_OF_MEMORY)  # the one thing that stays enforced
        assert job.do("memory()") <= (1000, 1000)
        connection.close()
        assert job.do("launch()") == 0
        said = job.end()  # of a limit that is no less garbage
        assert said == "" or said.startswith("tandem: refused device memory: ")
        assert said.count("\n") <= 1


def test_a_daemon_that_never_answers_delays_the_first_call_only(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        assert job.do("launch()") == 0
        assert job.do("shim.tandem_is_managed_v1()") == 0


def test_without_a_daemon_a_job_runs_and_says_nothing(preload: Preload) -> None:
    with Job(preload.environment()) as job:
        assert job.do("launch()") == 0
        assert job.end() == ""


def test_a_wrong_wish_is_one_line_and_the_default(preload: Preload, daemon: FakeDaemon) -> None:
    wishes = {"TANDEM_MEMORY": "12XB", "TANDEM_PRIORITY": "urgent", "TANDEM_PREEMPTIBLE": "maybe"}
    with Job(preload.environment(**wishes)) as job:
        attached = job.attach_to(daemon)

        assert attached.hello.request.memory_bytes == 0
        assert attached.hello.request.job_class == 0
        assert len(job.end().splitlines()) == 1


HAMI_MEMORY, HAMI_SM = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"


@pytest.mark.parametrize(
    ("said", "memory_mib", "sm_percent"),
    [
        ({HAMI_MEMORY: "300m", HAMI_SM: "30"}, 300, 30),
        ({HAMI_MEMORY: "1g", f"{HAMI_MEMORY}_0": "200m", f"{HAMI_MEMORY}_1": "9m"}, 200, 0),
        ({HAMI_SM: "30", f"{HAMI_SM}_0": "40%"}, 0, 40),
        ({f"{HAMI_MEMORY}_0": "0", HAMI_MEMORY: "300m", HAMI_SM: "0"}, 300, 0),
        ({f"{HAMI_MEMORY}_1": "300m", HAMI_SM: "100"}, 0, 0),  # for another device; all SMs
        ({HAMI_MEMORY: "1g", "TANDEM_MEMORY": "40%", HAMI_SM: "9", "TANDEM_SM": "8%"}, 400, 8),
    ],
)
def test_limits_as_hami_says_them_are_asked_for(
    said: dict[str, str], memory_mib: int, sm_percent: int, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(**said)) as job:
        request = job.attach_to(daemon).hello.request

        assert (request.memory_bytes, request.sm_percent) == (memory_mib * MIB, sm_percent)
        assert job.end() == ""


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (HAMI_MEMORY, "3 apples", "is neither a size (20GiB) nor a share (40%); ignoring it"),
        (f"{HAMI_MEMORY}_0", "12XB", "is neither a size (20GiB) nor a share (40%); ignoring it"),
        (HAMI_SM, "101", "is not a percentage (30); ignoring it"),
        (HAMI_SM, "half", "is not a percentage (30); ignoring it"),
    ],
)
def test_what_is_not_understood_is_called_by_hamis_name(
    name: str, value: str, complaint: str, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(**{name: value})) as job:
        request = job.attach_to(daemon).hello.request

        assert (request.memory_bytes, request.sm_percent) == (0, 0)
        assert job.end() == f"tandem: {name} '{value}' {complaint}\n"


def test_disabled_means_not_there(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment(TANDEM_DISABLE="1")) as job:
        assert job.do("[launch() for _ in range(3)]") == [0, 0, 0]
        assert job.do("cu.fake_count(b'cuMemHostRegister_v2')") == 0
        assert os.listdir(f"/proc/{job.pid}/task") == [str(job.pid)]


def test_observing_writes_records_and_nothing_else(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment(TANDEM_OBSERVE="1")) as job:
        job.start("launch()")
        attached = daemon.attach(hold=True)

        assert job.result() == 0
        attached.records()
        job.do("[launch() for _ in range(5)]")
        assert [r[8] for r in attached.records()] == [LAUNCH] * 5
        assert job.do(WRITES) == 0


def test_launches_are_counted(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)

        job.do("[launch(function=8) for _ in range(9)]")
        job.do("cu.cuCtxSynchronize()")

        attached.until("launches", 10)


def test_a_limit_is_shown_enforced_and_given_back(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("alloc(1)")
        attached = daemon.attach()
        job.result()
        attached.process.set_memory_limit(limit_bytes=100 * MIB)

        code, address = job.do(f"alloc({60 * MIB})")
        refused, _ = job.do(f"alloc({60 * MIB})")

        assert (code, refused) == (0, OUT_OF_MEMORY)
        assert job.do("memory()") == (39, 100)
        assert job.do("total()") == 100
        assert job.do(f"free({address})") == 0
        assert attached.snapshot().device_bytes == 1
        assert job.do(f"alloc({60 * MIB})")[0] == 0
        assert job.do("free(12345)") == 0  # not one of ours, so the driver handles it
        assert attached.until("refused_count", 1).peak_bytes == 60 * MIB + 1
        attached.connection.close()
        daemon.close()
        assert job.do(f"alloc({60 * MIB})")[0] == OUT_OF_MEMORY  # limits outlive the daemon
        assert job.end() == (
            "tandem: refused device memory: this process may use 100 MiB now (see tandem explain)\n"
        )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"TANDEM_JOB_ID": "j-1", "TANDEM_MEMORY": "300MiB"}, 300),
        ({"TANDEM_JOB_ID": "j-1", "TANDEM_MEMORY": "40%"}, 400),
        ({"TANDEM_JOB_ID": "j-1", "TANDEM_MEMORY": "2GiB"}, 1000),
        ({"TANDEM_JOB_ID": "j-1", "CUDA_DEVICE_MEMORY_LIMIT_0": "300m"}, 300),
        ({"TANDEM_JOB_ID": "j-1"}, 1000),
        ({"TANDEM_MEMORY": "300MiB"}, 1000),  # no daemon attached it
        ({"TANDEM_JOB_ID": "j-1", "TANDEM_MEMORY": "300MiB", "TANDEM_DISABLE": "1"}, 1000),
    ],
)
def test_a_registered_job_sees_its_limit_before_it_has_a_context(
    said: dict[str, str], shown: int, preload: Preload
) -> None:
    with Job(preload.environment(FAKE_CONTEXT="0", **said)) as job:
        assert job.do("total()") == shown
        assert job.end() == ""


def test_a_job_that_found_no_daemon_sees_the_whole_device(preload: Preload) -> None:
    said = {"TANDEM_JOB_ID": "j-1", "TANDEM_MEMORY": "300MiB"}
    with Job(preload.environment(**said)) as job:
        assert job.do("launch()") == 0
        assert job.do("total()") == 1000


def test_the_window_waits_for_the_gpu(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.process.set_window(segments=1, segment_ns=100_000)
        attached.until("busy", False)

        job.do("cu.fake_hold(1)")
        job.do("launch(function=70)")  # unknown, so a segment by itself
        assert attached.snapshot().wait_total_ns[WINDOW] == 0

        assert job.do("launch(function=71)") == 0  # after 250 ms without progress: ..
        assert attached.snapshot().wait_total_ns[WINDOW] > 0  # .. the GPU may be waiting for us


@pytest.mark.parametrize(
    ("end", "slots"),
    [
        ("cu.cuCtxDestroy_v2(0x1000)", 0),
        ("cu.cuCtxDestroy_v2(0x2000)", 1),  # a different context
        ("cu.cuCtxDestroy(0x1000)", 0),
        ("cu.cuCtxDetach(0x1000)", 0),
        ("(cu.cuCtxAttach(None, 0), cu.cuCtxDetach(0x1000))", 1),  # attached once more before
        ("cu.cuDevicePrimaryCtxReset(0)", 0),
        ("cu.cuStreamDestroy(5)", 0),
    ],
)
def test_what_ends_takes_its_slots_along(
    end: str, slots: int, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)

        job.do(end)

        assert attached.snapshot().live_slots == slots


def test_events_and_waits_of_a_whole_context_are_recorded(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)
        attached.records()

        for call in ("CtxRecordEvent", "GreenCtxRecordEvent", "CtxWaitEvent", "GreenCtxWaitEvent"):
            job.do(f"cu.cu{call}(0x1000, 0x2a)")
        job.do("(cu.cuCtxSynchronize(), cu.cuCtxSynchronize_v2(0x1000))")

        records = [r for r in attached.records() if r[8] in (SYNC, EVENT_RECORD, EVENT_WAIT)]
        assert [r[8] for r in records] == [EVENT_RECORD] * 2 + [EVENT_WAIT] * 2 + [SYNC] * 2
        objects = [int.from_bytes(r[24:32], "little") for r in records]
        assert objects[:4] == [0x2A] * 4


def test_work_of_the_legacy_stream_ends_though_blocking_streams_went_on(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(FAKE_BLOCKING="1")) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)

        # Neither stream is queried again, so only the helper thread can close what they leave open.
        address = "ctypes.c_uint64(1 << 40)"
        legacy = f"cu.cuMemsetD8_v2({address}, 1, ctypes.c_size_t(64))"
        blocking = f"cu.cuMemsetD8Async({address}, 1, ctypes.c_size_t(64), ctypes.c_void_p(5))"

        assert job.do(f"({legacy}, {blocking})") == (0, 0)
        attached.until("busy", False)


@pytest.mark.parametrize("environment", [{"FAKE_MEMOPS": "0"}, {"TANDEM_MARKERS": "event"}])
def test_without_memory_operations_events_tell_the_progress(
    preload: Preload, daemon: FakeDaemon, environment: dict[str, str]
) -> None:
    with Job(preload.environment(**environment)) as job:
        attached = job.attach_to(daemon)

        attached.until("busy", False)

        assert job.do(WRITES) == 0
        assert job.do("cu.fake_count(b'cuEventRecord')") > 0


def test_a_forked_child_attaches_on_its_own(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        parent = daemon.attach()
        job.result()

        job.start("in_child(launch)")
        of_child = daemon.attach()

        assert job.result() == 0
        assert of_child.until("busy", False).live_slots == 1
        assert parent.snapshot().live_slots == 1
        assert job.do("launch()") == 0


def test_what_the_legacy_stream_had_to_do_before_a_capture_ends_during_it(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)
        begin = "cu.cuStreamBeginCapture_v2(ctypes.c_void_p(5), 0)"

        assert job.do(f"([launch(stream=0) for _ in range(3)], {begin})")[1] == 0

        attached.until("busy", False)


WISHES = "lambda ns: shim.tandem_mark_v1(4, ctypes.c_uint64(0), ctypes.c_uint64(ns))"
MINUTE_NS = 60 * 10**9


def test_of_several_wishes_not_to_lose_the_gpu_the_longest_counts_until_all_have_ended(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        job.do(f"globals().update(wish={WISHES})")
        before_ns = time.monotonic_ns()
        job.do(f"(wish({MINUTE_NS}), wish(1000))")
        until_ns = attached.snapshot().critical_until_ns

        assert until_ns >= before_ns + MINUTE_NS // 2  # half, because the job's clock differs
        job.do("wish(0)")
        assert attached.snapshot().critical_until_ns == until_ns
        job.do("wish(0)")
        assert attached.snapshot().critical_until_ns == 0
        job.do("(wish(0), wish(2**64 - 1))")  # one end too many, then a wish without an end
        assert attached.snapshot().critical_until_ns == 2**64 - 1


def test_a_wish_that_ends_while_there_is_no_daemon_is_over(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        first = job.attach_to(daemon)
        job.do(f"globals().update(wish={WISHES})")
        job.do(f"wish({MINUTE_NS})")
        first.connection.close()
        while job.do("shim.tandem_is_managed_v1()"):
            pass
        job.do("wish(0)")
        second = job.attach_to(daemon)

        job.do(f"(wish({MINUTE_NS}), wish(0))")

        assert second.snapshot().critical_until_ns == 0


def test_what_other_threads_were_in_when_a_child_was_forked_has_no_end_there(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment(TANDEM_PRIORITY="latency")) as job:
        job.attach_to(daemon)
        job.do(f"globals().update(wish={WISHES})")
        job.do(f"(wish({MINUTE_NS}), shim.tandem_mark_v1(5, ctypes.c_uint64(1), 0))")

        job.start(
            f"in_child(lambda: (launch(), wish({MINUTE_NS}), wish(0),"
            " shim.tandem_mark_v1(1, ctypes.c_uint64(1), 0), sys.stdin.readline())[0])"
        )
        child = daemon.attach(job_class=1)

        assert child.until("steps", 1).critical_until_ns == 0
        while child.snapshot().presence_busy_until_ns > time.monotonic_ns():
            pass  # with a request that never ended, this would loop for ever
        job.start("")
        assert job.result() == 0


def test_a_capturing_thread_never_waits_and_its_launches_are_no_submissions(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        job.start("launch(stream=6)")
        attached = daemon.attach()
        job.result()
        attached.until("busy", False)
        job.do("cu.cuStreamBeginCapture_v2(ctypes.c_void_p(5), 0)")
        attached.records()
        attached.process.set_gate(hold=True)

        assert job.do("launch(stream=5)") == 0
        assert attached.records() == []
        assert attached.snapshot().capturing == 1
        attached.process.set_gate(hold=False)
        job.do("cu.cuStreamEndCapture(ctypes.c_void_p(5), None)")
        assert attached.snapshot().capturing == 0


def test_a_batch_job_yields_to_a_busy_latency_job_without_the_daemons_help(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as server, Job(preload.environment()) as trainer:
        server.start("launch()")
        serving = daemon.attach(job_class=1)
        server.result()
        serving.until("busy", False)
        trainer.start("launch()")
        training = daemon.attach(job_class=3, peers=[serving])
        trainer.result()

        server.do("shim.tandem_mark_v1(5, ctypes.c_uint64(1), ctypes.c_uint64(0))")
        trainer.start("launch()")
        waiting = training.until("waiting_threads", 1)
        server.do("shim.tandem_mark_v1(6, ctypes.c_uint64(1), ctypes.c_uint64(0))")

        assert waiting.wait_reason == 3
        assert trainer.result() == 0


def test_marks_reach_the_state_page(preload: Preload, daemon: FakeDaemon) -> None:
    mark = "shim.tandem_mark_v1({}, ctypes.c_uint64({}), ctypes.c_uint64({}))"
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)

        assert [job.do(mark.format(1, i, 0)) for i in range(3)] == [0, 0, 0]
        assert job.do(mark.format(2, 0xABCDEF, 0)) == 0
        seen = attached.until("steps", 3)
        assert job.do(mark.format(3, 0xABCDEF, 0)) == 0
        assert job.do(mark.format(7, 0, 0)) == -1

        assert seen.phase_hash in (0, 0xABCDEF)
        assert attached.snapshot().phase_hash == 0


def test_a_child_killed_in_a_launch_leaves_its_peers_alone(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        attached = daemon.attach(hold=True)
        attached.until("waiting_threads", 1)

        os.kill(job.pid, 9)

        assert attached.connection.recv(1) == b""  # the lease ended with the process

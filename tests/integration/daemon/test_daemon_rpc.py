import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from fake_shim import BATCH, CLASS_OFFSET, NORMAL, PATIENCE_S, register
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running_daemon import until

from tandem import _native
from tandem._wire import tandem_pb2 as pb
from tandem._wire import tandem_pb2_grpc as pb_grpc
from tandemd.core.policy import POLICIES

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY = 65534
AGES = Duration(seconds=10**12)


def status_of(call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value.code(), caught.value.details()


def test_status_tells_what_the_daemon_is(daemon):
    with daemon.start("--policy", "fair").rpc() as rpc:
        daemon.shim()
        status = rpc.call(rpc.daemon_service.GetStatus, pb.GetStatusRequest())

    assert (status.pid, status.policy, status.clock) == (daemon.process.pid, "fair", "monotonic")
    assert (status.jobs, status.processes) == (1, 1)


def metric(rpc, series):
    """Return the value of a series, or None if there is no such series."""
    text = rpc.call(rpc.daemon_service.GetMetrics, pb.GetMetricsRequest()).text
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return found and float(found[1])


def test_metrics_tell_the_versions_of_shims_and_what_decisions_took(daemon):
    with daemon.start().rpc() as rpc:
        connected = 'tandem_shim_connected{version="0.1.0"}'
        assert metric(rpc, connected) == 0
        before = metric(rpc, "tandem_scheduler_decision_seconds_count")

        daemon.shim()

        assert metric(rpc, connected) == 1
        assert metric(rpc, "tandem_scheduler_decision_seconds_count") > before
        assert metric(rpc, "tandem_scheduler_decision_seconds_sum") > 0


def test_a_call_without_a_token_is_turned_away(daemon):
    with daemon.start().rpc() as rpc:
        code, details = status_of(rpc.job_service.ListJobs, pb.ListJobsRequest())

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "login socket" in details


def test_a_token_dies_with_its_connection(daemon):
    with daemon.start().rpc() as rpc:
        rpc.jobs()

        rpc.login.shutdown(socket.SHUT_RDWR)

        def is_void():
            try:
                rpc.jobs()
            except grpc.RpcError as error:
                return error.code() is grpc.StatusCode.UNAUTHENTICATED
            return False

        until(is_void, what="the token is void")


def test_health_needs_no_token(daemon):
    with daemon.start().rpc() as rpc:
        stub = health_pb2_grpc.HealthStub(rpc.channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_pausing_closes_the_gate_and_resuming_opens_it(daemon):
    shim = daemon.start().shim(name="nb")
    with daemon.rpc() as rpc:
        paused = rpc.call(rpc.job_service.PauseJob, pb.PauseJobRequest(name="nb"))
        assert (paused.status.state, shim.is_held) == (pb.STATE_PAUSED, True)

        rpc.call(rpc.job_service.ResumeJob, pb.JobName(name="nb"))

        assert not shim.is_held


def test_an_update_changes_what_its_mask_names(daemon):
    shim = daemon.start().shim(name="nb", job_class=NORMAL)
    spec = pb.JobSpec(memory_quota_bytes=5, sm_percent=7)
    setattr(spec, "class", pb.CLASS_BATCH)
    request = pb.UpdateJobRequest(
        job=pb.Job(name="nb", spec=spec), update_mask=FieldMask(paths=["spec.class"])
    )

    with daemon.rpc() as rpc:
        job = rpc.call(rpc.job_service.UpdateJob, request)

    assert getattr(job.spec, "class") == pb.CLASS_BATCH
    assert job.spec.sm_percent == 0
    assert shim.word(CLASS_OFFSET) == BATCH


def test_an_owner_changes_what_a_job_promises(daemon):
    daemon.start("--policy", "lanes").shim(name="nb")
    spec = pb.JobSpec(persistent_bytes=1 << 20, ephemeral_bytes=2 << 20)
    mask = FieldMask(paths=["spec.persistent_bytes", "spec.ephemeral_bytes"])
    request = pb.UpdateJobRequest(job=pb.Job(name="nb", spec=spec), update_mask=mask)

    with daemon.rpc() as rpc:
        job = rpc.call(rpc.job_service.UpdateJob, request)
        request.job.spec.ephemeral_bytes = -1
        refused = status_of(rpc.call, rpc.job_service.UpdateJob, request)

    assert (job.spec.persistent_bytes, job.spec.ephemeral_bytes) == (1 << 20, 2 << 20)
    assert refused == (grpc.StatusCode.INVALID_ARGUMENT, "ephemeral -1 is negative")


@pytest.mark.parametrize("paths", [[], ["spec.group"], ["uid"]])
def test_an_update_of_what_cannot_change_is_refused(daemon, paths):
    daemon.start().shim(name="nb")
    request = pb.UpdateJobRequest(job=pb.Job(name="nb"), update_mask=FieldMask(paths=paths))

    with daemon.rpc() as rpc:
        code, _ = status_of(rpc.call, rpc.job_service.UpdateJob, request)

    assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("path", "spec", "told"),
    [
        ("wait_memory", {"wait_memory": AGES}, "wait_memory 1000000000000s is more than 65535s"),
        ("idle_release", {"idle_release": AGES}, "more than 3153600000s"),
        ("slo", {"slo": pb.Slo(p99=AGES)}, "slo 1000000000000s is more than 3153600000s"),
    ],
)
def test_a_duration_that_nobody_lives_to_see_is_refused_and_harms_nobody(daemon, path, spec, told):
    config = daemon.base / "config.toml"
    config.write_text('[partition]\ntuner = "on"\n')
    shim = daemon.start("--config", str(config)).shim(name="nb")
    request = pb.UpdateJobRequest(job=pb.Job(name="nb", spec=pb.JobSpec(**spec)))
    request.update_mask.paths.append(f"spec.{path}")

    with daemon.rpc() as rpc:
        code, details = status_of(rpc.call, rpc.job_service.UpdateJob, request)
        shim.work(busy=True)
        daemon.shim(job_id=shim.job_id)
        (job,) = rpc.jobs()

    assert (code, told in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert job.spec.slo.p99.ToNanoseconds() == 0
    assert "level=error" not in daemon.log.read_text()


def test_an_update_of_a_job_that_changed_meanwhile_is_refused(daemon):
    daemon.start().shim(name="nb")
    mask = FieldMask(paths=["spec.sm_percent"])
    job = pb.Job(name="nb", etag="00000000", spec=pb.JobSpec(sm_percent=3))

    with daemon.rpc() as rpc:
        request = pb.UpdateJobRequest(job=job, update_mask=mask)
        code, _ = status_of(rpc.call, rpc.job_service.UpdateJob, request)

    assert code is grpc.StatusCode.FAILED_PRECONDITION


def test_an_unknown_name_and_an_ambiguous_one_are_not_found(daemon):
    daemon.start()
    daemon.shim(name="twin")
    daemon.shim(name="twin")

    with daemon.rpc() as rpc:
        explain = rpc.job_service.ExplainJob
        unknown = status_of(rpc.call, explain, pb.JobName(name="nobody"))
        ambiguous = status_of(rpc.call, explain, pb.JobName(name="twin"))

    assert unknown[0] is ambiguous[0] is grpc.StatusCode.NOT_FOUND
    assert "several jobs" in ambiguous[1]


def test_explain_says_who_has_the_gpu(daemon):
    holder = daemon.start("--policy", "fifo").shim(job_class=BATCH, name="first")
    waiter = daemon.shim(job_class=BATCH, name="second")
    holder.work(busy=True)
    waiter.work(busy=False, waiting=True)
    until(lambda: waiter.is_held, what="the second is held")

    with daemon.rpc() as rpc:
        answer = rpc.call(rpc.job_service.ExplainJob, pb.JobName(name="second"))

    assert "has the gpu" in answer.summary
    assert answer.mode == pb.MODE_TIME
    assert any("held: " in line for line in answer.story)


def test_jobs_come_a_page_at_a_time(daemon):
    daemon.start()
    for _ in range(3):
        daemon.shim()

    with daemon.rpc() as rpc:
        list_jobs = rpc.job_service.ListJobs
        first = rpc.call(list_jobs, pb.ListJobsRequest(page_size=2))
        rest = rpc.call(
            list_jobs, pb.ListJobsRequest(page_size=2, page_token=first.next_page_token)
        )
        bad, _ = status_of(rpc.call, list_jobs, pb.ListJobsRequest(page_token="-1"))

    assert (len(first.jobs), len(rest.jobs), rest.next_page_token) == (2, 1, "")
    assert bad is grpc.StatusCode.INVALID_ARGUMENT


def test_a_watcher_hears_of_changes(daemon):
    with daemon.start().rpc() as rpc:
        events = rpc.job_service.WatchJobs(pb.WatchJobsRequest(), metadata=rpc.metadata)
        list(events.initial_metadata())
        daemon.shim(name="nb")

        kinds = {next(events).kind for _ in range(2)}
        events.cancel()

    assert kinds == {"idle", "attached"}


def test_a_job_was_created_at_one_moment(daemon):
    daemon.start().shim(name="nb")

    with daemon.rpc() as rpc:
        looks = [rpc.jobs()[0] for _ in range(20)]

    moments = {
        (job.create_time.ToNanoseconds(), job.processes[0].attach_time.ToNanoseconds())
        for job in looks
    }
    assert len(moments) == 1


@pytest.mark.slow
def test_a_watcher_that_does_not_read_is_told_so_in_the_end(daemon):
    job_id = daemon.start().shim(name="nb").job_id
    for _ in range(50):  # makes events large, so the socket is soon full
        daemon.shim(job_id=job_id)
    # A flow-control window that does not grow, and a connection of its own.
    options = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    address = f"unix:{daemon.runtime / 'tandemd.sock'}"
    with daemon.rpc() as rpc, grpc.insecure_channel(address, options=options) as channel:
        watch = pb_grpc.JobServiceStub(channel).WatchJobs
        slow = watch(pb.WatchJobsRequest(), metadata=rpc.metadata)
        list(slow.initial_metadata())

        for _ in range(600):  # more than the daemon keeps and the socket holds
            rpc.call(rpc.job_service.PauseJob, pb.PauseJobRequest(name="nb"))
            rpc.call(rpc.job_service.ResumeJob, pb.JobName(name="nb"))

        code, details = status_of(list, slow)
        assert len(rpc.jobs()) == 1
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "too slow" in details


def test_an_admin_changes_the_policy(daemon):
    with daemon.start().rpc() as rpc:
        policy = rpc.call(rpc.policy_service.SetPolicy, pb.SetPolicyRequest(name="fair"))
        code, details = status_of(
            rpc.call, rpc.policy_service.SetPolicy, pb.SetPolicyRequest(name="lottery")
        )

    assert policy.name == "fair"
    assert list(policy.available) == sorted(POLICIES)
    assert (code, "lottery" in details) == (grpc.StatusCode.NOT_FOUND, True)


def test_a_uid_has_so_many_watches_and_gets_a_place_back(daemon):
    with daemon.start().rpc() as rpc:

        def watch():
            watch = rpc.job_service.WatchJobs(pb.WatchJobsRequest(), metadata=rpc.metadata)
            watch.initial_metadata()
            return watch

        watches = [watch() for _ in range(8)]
        code, details = status_of(next, watch())
        watches[0].cancel()

        until(lambda: watch().is_active(), what="there is a place again")

    assert (code, f"than 8 clients of uid {os.geteuid()} may watch at once" in details) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        True,
    )
    assert daemon.stop() == 0


@as_root
def test_another_uid_sees_jobs_but_no_command_lines_and_may_not_touch_them(daemon):
    daemon.start().shim(name="mine", group="ours")
    program = (
        "import os, sys, grpc, pathlib; sys.path[:0] = sys.argv[2:];"
        "from running_daemon import Rpc; from tandem._wire import tandem_pb2 as pb;"
        "import grpc._channel; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "rpc = Rpc(pathlib.Path(sys.argv[1])); (job,) = rpc.jobs(); print(repr(job.command));\n"
        "for call, request in ((rpc.job_service.PauseJob, pb.PauseJobRequest(name='mine')),"
        "(rpc.job_service.CancelJob, pb.CancelJobRequest(name='mine')),"
        "(rpc.job_service.ChangeGroup, pb.ChangeGroupRequest("
        "group='ours', pause=pb.PauseJobRequest())),"
        "(rpc.policy_service.SetPolicy, pb.SetPolicyRequest(name='fair')),"
        "(rpc.partition_service.ApplyPartition, pb.ApplyPartitionRequest(mig='0=off'))):\n"
        " try: rpc.call(call, request)\n"
        " except grpc.RpcError as error: print(error.code().name)\n"
        "sys.stdout.flush(); os._exit(0)"
    )
    here = Path(__file__).parent
    command = [sys.executable, "-c", program, str(daemon.runtime), str(here), str(here.parents[1])]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert answer.stdout.split() == ["''", *["PERMISSION_DENIED"] * 5]


def test_a_hang_up_signal_reads_the_configuration_again_and_keeps_the_old_one_on_error(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[scheduler]\npolicy = "fair"\n')
    with daemon.start("--config", str(config)).rpc() as rpc:

        def policy():
            return rpc.call(rpc.policy_service.GetPolicy, pb.GetPolicyRequest()).name

        def success():
            return metric(rpc, "tandem_config_reload_success")

        assert success() == 1
        config.write_text('[scheduler]\npolicy = "fifo"\n')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: policy() == "fifo", what="the new policy decides")

        config.write_text('[scheduler]\npolcy = "fair"\n')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "scheduler.polcy" in daemon.log.read_text(), what="the error is logged")
        until(lambda: success() == 0, what="metrics tell it")
        assert policy() == "fifo"

        config.write_text('[scheduler]\npolicy = "fair"\n')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: success() == 1, what="metrics tell that it is right again")


LAUNCH, SYNC, OF_STREAM = 1, 6, 1


def iterate(shim, *, until_done):
    """Launch three kernels and wait for them, again and again."""
    while not until_done():
        for function in (0xA, 0xB, 0xC):
            shim.record(LAUNCH, object=function)
        shim.record(SYNC, low=OF_STREAM)
        until_done.wait(0.002)


class Done(threading.Event):
    __call__ = threading.Event.is_set


def whole_window(rpc, name):
    """Record a window that lost nothing: it loses records if the daemon is half a second late."""
    while True:
        request = pb.RecordWindowRequest(name=name)
        (window,) = rpc.call(rpc.job_service.RecordWindow, request)
        if not window.lost_records:
            return window


def test_an_iteration_of_a_job_is_recorded(daemon):
    with daemon.start().rpc() as rpc:
        shim = daemon.shim(name="train")
        shim.work(busy=True)
        done = Done()
        worker = threading.Thread(target=iterate, args=(shim,), kwargs={"until_done": done})
        worker.start()
        try:
            window = whole_window(rpc, "train")
        finally:
            done.set()
            worker.join()

    assert (window.pid, list(window.gpus)) == (os.getpid(), [0])
    assert window.iterations >= 1
    assert window.end_ns > window.begin_ns
    recorded = _native.RecordedOperations(window.records)
    kinds = [operation.kind.name for operation in recorded.operations]
    # The detector chooses where in the loop an iteration begins.
    assert len(kinds) == 4 * window.iterations
    assert kinds.count("LAUNCH") == 3 * window.iterations
    assert kinds.count("SYNC_STREAM") == window.iterations


def test_a_job_without_processes_cannot_be_recorded(daemon):
    with daemon.start().rpc() as rpc:
        shim = daemon.connect()
        shim.socket.send(register(name="later"))
        shim.receive()

        code, details = status_of(
            lambda: list(
                rpc.call(rpc.job_service.RecordWindow, pb.RecordWindowRequest(name="later"))
            )
        )

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "no process" in details


@pytest.mark.parametrize(
    ("signatures", "fault"),
    [
        ({"copy": "float*, 3"}, "kernel 'copy': parameter 2 of 'float*, 3' is not understood"),
        ({str(i): "int" for i in range(1025)}, "1025 signatures are more than 1024"),
    ],
)
def test_signatures_that_are_none_are_refused(daemon, signatures, fault):
    with daemon.start().rpc() as rpc:
        daemon.shim(name="train")
        request = pb.RecordWindowRequest(name="train", signatures=signatures)

        code, details = status_of(lambda: list(rpc.call(rpc.job_service.RecordWindow, request)))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert fault in details


def test_a_patience_beyond_a_minute_is_refused(daemon):
    with daemon.start().rpc() as rpc:
        daemon.shim(name="train")
        request = pb.RecordWindowRequest(name="train")
        request.patience.FromSeconds(61)

        code, details = status_of(lambda: list(rpc.call(rpc.job_service.RecordWindow, request)))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "60" in details


def test_a_trace_is_as_long_as_asked_and_gives_its_place_back(daemon):
    with daemon.start().rpc() as rpc:
        request = pb.RecordTraceRequest()
        request.duration.FromMilliseconds(1)

        traces = [list(rpc.call(rpc.trace_service.RecordTrace, request)) for _ in range(3)]

        request.duration.FromSeconds(601)
        code, details = status_of(lambda: list(rpc.call(rpc.trace_service.RecordTrace, request)))

    assert [chunks[0] for chunks in traces] == [pb.TraceChunk()] * 3
    assert (code, "between 0 and 600 s" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)

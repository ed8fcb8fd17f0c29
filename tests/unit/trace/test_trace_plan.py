"""The plan by which a recording is played."""

from recordings import CONTEXT, Thread, recording_of

from tandem.trace.chrome import events
from tandem.trace.plan import make_plan
from tandem.trace.replay import kernel_source, kernel_symbols

STREAM, OTHER, EVENT = 0x55, 0x66, 0x44


def operations(plan, process=0, thread=0):
    return plan.processes[process].threads[thread].operations


def kinds(plan, **where):
    return [operation.kind for operation in operations(plan, **where)]


def test_work_keeps_its_sizes_streams_and_times():
    thread = Thread().call("cuMemAlloc_v2", 1, 0x7F00, 4096, number=1)
    thread.call("cuMemcpyHtoDAsync_v2", 0x7F00, 9, 512, STREAM, number=2, stream=STREAM, flags=32)
    thread.function().launch(number=3, stream=STREAM, device_ns=700)
    thread.call("cuMemsetD32Async", 0x7F00, 1, 16, OTHER, number=4, stream=OTHER)
    thread.call("cuMemcpyDtoH_v2", 9, 0x7F00, 256, number=5, stream=1)
    thread.call("cuMemFree_v2", 0x7F00, number=6)

    plan = make_plan(recording_of(thread))
    alloc, copy, launch, fill, back, free = operations(plan)

    assert (alloc.size_bytes, alloc.allocation, free.allocation) == (4096, 0, 0)
    assert (copy.direction, copy.size_bytes, copy.stream) == ("htod", 512, 0)
    assert (launch.device_ns, plan.kernels[launch.kernel], launch.stream) == (700, "vadd", 0)
    assert (fill.size_bytes, fill.stream) == (64, 1)
    assert (back.direction, back.stream) == ("dtoh", -1)
    assert plan.processes[0].streams == [(0, True), (0, False)]
    assert plan.processes[0].largest_copy_bytes == 512
    assert plan.kernel_ns == 700


def test_gaps_are_those_between_the_calls_of_a_thread():
    thread = Thread(time_ns=1000).call("cuCtxSynchronize", number=1, ns=50)
    thread.time_ns += 300
    thread.call("cuCtxSynchronize", number=2, ns=50)
    late = Thread(tid=7, time_ns=1200).call("cuCtxSynchronize", number=3, ns=500)

    plan = make_plan(recording_of(thread, late))

    assert [o.gap_ns for o in operations(plan)] == [0, 300]
    assert [t.start_gap_ns for t in plan.processes[0].threads] == [0, 200]
    assert plan.makespan_ns == 700


def test_a_thread_waits_for_what_another_has_put_into_the_stream():
    first, second = Thread(tid=1), Thread(tid=2)
    first.launch(number=1, stream=STREAM).call(
        "cuEventRecord", EVENT, STREAM, number=2, stream=STREAM
    )
    second.call("cuStreamWaitEvent", OTHER, EVENT, 0, number=3, stream=OTHER)
    second.launch(number=4, stream=OTHER).launch(number=5, stream=STREAM)

    plan = make_plan(recording_of(first, second))
    launch, record = operations(plan)
    wait, own, shared = operations(plan, thread=1)

    assert (launch.id, record.id) == (-1, 0)
    assert (wait.after, own.after, shared.after) == ([0], [], [0])


def test_queries_are_time_until_one_says_done():
    thread = Thread()
    thread.call("cuEventQuery", EVENT, number=1, result=600, ns=5)
    thread.call("cuEventQuery", EVENT, number=2, result=600, ns=5)
    thread.call("cuEventQuery", EVENT, number=3, ns=5)

    plan = make_plan(recording_of(thread))

    assert kinds(plan) == ["sync_event"]
    assert plan.left_out == {}


def test_what_cannot_be_played_is_counted():
    thread = Thread().call("cuLaunchHostFunc", STREAM, 1, 2, number=1, stream=STREAM)
    thread.call("cuStreamWriteValue32_v2", STREAM, 1, 2, 3, number=2, stream=STREAM)
    thread.call("cuCtxSynchronize", number=3, flags=2)
    thread.call("cuMemAlloc_v2", 1, 0, 1 << 50, number=4, result=2)
    thread.call("cuMemGetInfo_v2", 1, 2, 3, 4, number=5)

    plan = make_plan(recording_of(thread))

    assert plan.processes == []
    assert plan.left_out == {
        "cuLaunchHostFunc": 1,
        "cuStreamWriteValue32": 1,
        "cuCtxSynchronize": 1,
    }


def test_questions_are_neither_played_nor_missed():
    thread = Thread().call("cuGetProcAddress_v2", *range(7), number=1, text=b"cuMemAlloc")
    thread.call("cuInit", 0, number=2).call("cuPointerGetAttribute", 1, 2, 3, number=3)
    thread.call("cuDeviceTotalMem_v2", 1, 2, 3, number=4)

    assert make_plan(recording_of(thread)).left_out == {}


def test_captured_launches_are_their_graph_s():
    words = (0xF0, 1, 1, 1, 32, 1, 1, 0, STREAM, 0, 0)
    thread = Thread().call("cuLaunchKernel", *words, number=1, stream=STREAM, flags=16)
    thread.call("cuGraphLaunch", 0x99, STREAM, number=2, stream=STREAM, device_ns=900)

    plan = make_plan(recording_of(thread))

    assert kinds(plan) == ["launch"]
    assert (plan.kernels, plan.kernel_ns) == (["graph"], 900)


def test_a_launch_without_a_time_lasts_as_long_as_others_of_its_kernel():
    thread = Thread().function(handle=1, name=b"a").function(handle=2, name=b"b")
    thread.launch(number=1, stream=STREAM, function=1, device_ns=100)
    thread.launch(number=2, stream=STREAM, function=1, device_ns=300)
    thread.launch(number=3, stream=STREAM, function=1).launch(number=4, stream=STREAM, function=2)

    plan = make_plan(recording_of(thread))

    assert [o.device_ns for o in operations(plan)] == [100, 300, 200, 0]
    assert plan.untimed_launches == 2


def test_a_handle_that_is_used_again_is_another_stream():
    thread = Thread().launch(number=1, stream=STREAM)
    thread.call("cuStreamDestroy_v2", STREAM, number=2, stream=STREAM)
    thread.launch(number=3, stream=STREAM, device_ns=1)

    plan = make_plan(recording_of(thread))

    assert [o.stream for o in operations(plan)] == [0, 0, 1]


def test_contexts_and_default_streams_are_told_apart():
    thread = Thread().launch(number=1, stream=1)
    thread.call("cuCtxSynchronize", number=2, context=CONTEXT + 1)
    thread.call("cuEventRecord", EVENT, 0, number=3, stream=1, context=CONTEXT + 1)

    plan = make_plan(recording_of(thread))

    assert [o.context for o in operations(plan)] == [0, 1, 1]
    assert [o.stream for o in operations(plan)] == [0, -1, 1]
    assert plan.processes[0].default_streams == {0: 1, 1: 1}
    assert plan.processes[0].contexts == 2


def test_where_a_plain_copy_goes_is_known_from_the_allocations():
    thread = Thread().call("cuMemAlloc_v2", 1, 0x7000, 4096, number=1)
    thread.call("cuMemcpy", 0x7100, 0x10, 8, number=2, stream=1)
    thread.call("cuMemcpyAsync", 0x10, 0x7FFF, 8, STREAM, number=3, stream=STREAM)
    thread.call("cuMemcpy", 0x7100, 0x7200, 8, number=4, stream=1)

    plan = make_plan(recording_of(thread))

    assert [o.direction for o in operations(plan)] == ["", "htod", "dtoh", "dtod"]


def test_kernels_keep_their_names_where_the_linker_allows_it():
    names = ["vadd", "memcpy", "a b", "int", "vadd(float*)"]

    symbols = kernel_symbols(names)

    assert symbols == [
        "vadd",
        "memcpy_replayed_1",
        "a_b_replayed_2",
        "int",
        "vadd_float___replayed_4",
    ]
    assert '__asm__("int");' in kernel_source(symbols)


def test_the_export_draws_launches_one_after_the_other_in_their_stream():
    thread = Thread(time_ns=0).function()
    thread.launch(number=1, stream=STREAM, device_ns=500)
    thread.launch(number=2, stream=STREAM, device_ns=300)

    rows = list(events(recording_of(thread)))
    kernels = [row for row in rows if row.get("cat") == "gpu"]

    assert [(row["name"], row["ts"], row["dur"]) for row in kernels] == [
        ("vadd", 0.01, 0.5),
        ("vadd", 0.51, 0.3),
    ]
    names = [row["args"]["name"] for row in rows if row["ph"] == "M"]
    assert names == ["prog (100)", f"GPU stream {STREAM:#x} (begins are estimates)"]

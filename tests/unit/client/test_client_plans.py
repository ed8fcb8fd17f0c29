"""`tandem partition plan`, from messages to text."""

from tandem import _convert_plans
from tandem._wire import tandem_pb2 as pb
from tandem.cli import partition_plan


def message():
    server = pb.PlannedJob(job="j-1", display_name="llama", sms=64, progress_ratio=1, slowdown=1.2)
    server.p99.FromMilliseconds(60)
    server.misses = True
    trainer = pb.PlannedJob(job="j-2", sms=68, shares_with=["j-3"], progress_ratio=0.45, slowdown=1)
    plan = pb.Plan(
        kind="time and space",
        needs="mode mps",
        progress=1.5,
        missed=1,
        jobs=[server, trainer],
    )
    gpu = pb.Gpu(name="0", product_name="Tandem GPU", mode=pb.MODE_TIME, sm_count=132)
    return pb.Plans(gpus=[pb.GpuPlans(gpu=gpu, plans=[plan], notes=["j-2: nobody knows"])])


def test_plans_are_told_as_they_are(capsys):
    (found,) = _convert_plans.plans(message())

    partition_plan._show(found)

    told = capsys.readouterr().out
    assert "1. time and space: 1.50 of progress by weight, 1 objective missed; mode mps" in told
    row, other = (line.split() for line in told.splitlines() if line.startswith("j-"))
    assert row == ["j-1", "llama", "64", "-", "1.00", "60", "ms!", "20%"]
    assert other == ["j-2", "-", "68", "j-3", "0.45", "-", "-"]
    assert told.endswith("  j-2: nobody knows\n")


def test_the_plan_in_force_is_told_as_such_and_why(capsys):
    planned = message()
    planned.gpus[0].plans[0].in_force = True
    planned.gpus[0].planner = "the jobs changed"
    server = planned.gpus[0].plans[0].jobs[0]
    server.measured_progress_ratio = 0.9
    server.measured_p99.FromMilliseconds(55)
    (found,) = _convert_plans.plans(planned)

    partition_plan._show(found)

    told = capsys.readouterr().out
    assert "1 objective missed; in force\n" in told
    assert "\n  in force, because: the jobs changed\n" in told
    assert "\n  j-1: measured so far: progress 0.90, p99 55 ms\n" in told
    assert "j-2: measured" not in told


def test_of_a_gpu_without_jobs_it_is_said_that_nobody_is_there(capsys):
    empty = message()
    del empty.gpus[0].plans[:], empty.gpus[0].notes[:]
    (found,) = _convert_plans.plans(empty)

    partition_plan._show(found)

    assert capsys.readouterr().out.endswith("mode time, 132 SMs\n  no job is there\n")

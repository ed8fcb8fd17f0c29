"""Files are read strictly: errors name the file, the key and the allowed values."""

import json
import os
import subprocess
import sys

import pytest

from tandem.errors import UsageError
from tandemd.core.model import JobClass
from tandemd.sim.__main__ import main, parse
from tandemd.sim.programs import Answer, Compute, SleepUntil, program_of
from tandemd.sim.report import jain, percentile
from tandemd.sim.workload import load

FILE = """
[gpu]
memory = "80GiB"
sms = 132

[[job]]
name = "server"
class = "latency"
slo = "p99=10ms"
serving = {rate = 50, duration = "400ms", gpu = "2ms", seed = 7}

[[job]]
name = "trainer"
sm = "30%"
training = {iterations = 20, gpu = "20ms", variation = 0.3, seed = 7}

[scheduler]
policy = "fair"
quantum_ms = 4

[class.batch]
weight = 2
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    return path


def test_keys_of_the_daemon_mean_what_they_mean_to_it(file):
    options = load(file).options

    assert (options.policy, options.quantum_ns) == ("fair", 4_000_000)
    assert options.weight(JobClass.BATCH) == 2


def test_jobs_are_told_to_the_core_as_tandem_run_tells_them(file):
    server, trainer = (job.spec() for job in load(file).jobs)

    assert (server.job_class, server.slo_p99_ns) == (JobClass.LATENCY, 10_000_000)
    assert (trainer.job_class, trainer.sm_percent) == (JobClass.NORMAL, 30)


def test_the_command_line_comes_before_the_file(file):
    workload = load(file, ["scheduler.quantum_ms=2.5", "gpu.slice=1ms"], "priority")

    assert workload.options.quantum_ns == 2_500_000
    assert workload.options.policy == "priority"
    assert workload.gpu.slice_ns == 1_000_000


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("quantum_ms = 4", "quantm_ms = 4", "scheduler.quantm_ms: unknown key; did you mean quan"),
        ("quantum_ms = 4", "quantum_ms = 0", "scheduler.quantum_ms: Input should be greater than"),
        (
            '"fair"',
            '"fare"',
            "scheduler.policy: no policy is named 'fare'; there are curves, exclusive",
        ),
        ("iterations = 20", "iteration = 20", "job.1.training.iteration: unknown key"),
        ("iterations = 20", "iterations = 0", "job.1.training.iterations: Input should be greater"),
        ('gpu = "20ms"', 'gpu = "20"', "job.1.training.gpu: duration '20' has no unit; use ns"),
        ('gpu = "20ms"', "gpu = 20", "job.1.training.gpu: Input should be a valid string, not 20"),
        ('gpu = "20ms"', 'gpu = "0ms"', "job.1.training.gpu: duration '0ms' is zero"),
        ('class = "latency"', 'class = "late"', "job.0.class: Input should be 'latency', 'normal'"),
        ('"p99=10ms"', '"10ms"', "job.0.slo: slo '10ms' is not an objective; write it as p99="),
        ('"30%"', '"300%"', "job.1.sm: sm '300%' is not a share"),
        ('name = "trainer"', 'name = "server"', "job: more than one job is named 'server'"),
        ("rate = 50, ", "", "job.0.serving: give either rate and duration, or arrivals"),
        ("serving = {", "training = {", "job.0.training.rate: unknown key"),
        ("serving = {", "other = {", "job.0.other: unknown key"),
        ('"80GiB"', '"80XiB"', "gpu.memory: size '80XiB' has the unknown unit 'XiB'"),
        ("[gpu]", '[gpu]\nmode = "mps"', "gpu.mode: Input should be 'time', not 'mps'"),
        ("[class.batch]", "[class.bulk]", "class.bulk: Input should be 'latency', 'normal' or"),
        ("[gpu]", "[gpu", "Expected ']'"),
    ],
)
def test_what_is_wrong_is_named(file, old, new, told):
    assert old in FILE
    file.write_text(FILE.replace(old, new, 1))

    with pytest.raises(UsageError) as caught:
        load(file)
    assert f"{file}: " in str(caught.value)
    assert told in str(caught.value)


def test_a_job_does_one_thing(file):
    file.write_text('[[job]]\nname = "idle"\n')

    with pytest.raises(UsageError, match=r"job 'idle' needs either \[job.training\] or \[job.serv"):
        load(file)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("quantum_ms=5", "is not TABLE.KEY=VALUE with a table of scheduler, class, gpu"),
        ("scheduler.quantum_ms", "is not TABLE.KEY=VALUE"),
        ("job.name=a", "is not TABLE.KEY=VALUE"),
        ("scheduler.quantum_ms.x=5", "quantum_ms is not a table"),
        ("scheduler.quantum_ms=none", "--set: scheduler.quantum_ms: Input should be a valid numb"),
    ],
)
def test_a_wrong_setting_is_named(file, setting, told):
    with pytest.raises(UsageError) as caught:
        load(file, [setting])
    assert told in str(caught.value)


def test_a_missing_file_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path / "none.toml")])
    assert caught.value.code == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err


def came_and_cost(job):
    steps = list(program_of(job))
    return (
        [step.since_arrival_ns for step in steps if isinstance(step, SleepUntil)],
        [step.work_ns for step in steps if isinstance(step, Compute)],
    )


def test_chance_repeats_and_depends_on_seed_and_name(file):
    server, trainer = load(file).jobs
    other = server.model_copy(update={"name": "other"})
    seeded = server.model_copy(update={"serving": server.serving.model_copy(update={"seed": 8})})

    assert came_and_cost(server) == came_and_cost(server)
    assert len({str(came_and_cost(one)) for one in (server, other, seeded)}) == 3
    assert len(set(came_and_cost(trainer)[1])) == 20
    assert all(14_000_000 <= work_ns <= 26_000_000 for work_ns in came_and_cost(trainer)[1])


def test_requests_come_at_the_same_times_whether_or_not_they_vary(file):
    server = load(file).jobs[0]
    varied = server.serving.model_copy(update={"variation": 0.5})

    came_ns, _ = came_and_cost(server)
    assert came_and_cost(server.model_copy(update={"serving": varied}))[0] == came_ns
    assert 10 < len(came_ns) < 35  # 20 are expected
    assert came_ns == sorted(came_ns)


def test_each_request_that_comes_is_answered(file):
    server = load(file).jobs[0]
    steps = list(program_of(server))

    assert sum(isinstance(step, Answer) for step in steps) == len(came_and_cost(server)[0])


def test_policies_are_compared_side_by_side(file, capsys):
    main([str(file), "--policy", "fair", "--policy", "priority"])

    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines()[:3]] == ["POLICY", "fair", "priority"]
    assert told.count("JOB ") == 2


def test_json_has_all_figures(file, capsys):
    main([str(file), "--json"])

    (report,) = json.loads(capsys.readouterr().out)
    server, trainer = report["jobs"]
    assert report["policy"] == "fair"
    assert trainer["iterations"] == 20
    assert 0 <= server["within_slo"] <= 1
    assert server["p50_ns"] >= 2_000_000


def test_until_has_a_unit(file, capsys):
    with pytest.raises(SystemExit):
        main([str(file), "--until", "60"])
    assert "--until '60' has no unit" in capsys.readouterr().err


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert "examples:\n  python -m tandemd.sim jobs.toml" in capsys.readouterr().out


def test_the_same_file_gives_the_same_bytes(file):
    """The result does not depend on how a process hashes strings."""
    command = [sys.executable, "-m", "tandemd.sim", str(file), "--policy", "priority", "--json"]
    told = {
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert len(told) == 1


def test_percentiles_are_of_those_that_there_were():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([5], 0.99) == 5
    assert percentile([], 0.5) is None


def test_fairness_is_one_where_all_are_alike_and_one_in_n_where_one_bears_all():
    assert jain([2, 2, 2]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([]) is None

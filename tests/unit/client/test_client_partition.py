"""What `tandem partition show` prints of a daemon's answers."""

import json
import sys
from dataclasses import replace

import pytest

from tandem._results import Gpu, JobPart, Partition, ScalingCurve
from tandem.cli import __main__ as cli

GPU = Gpu(
    index=0,
    name="0",
    uuid="GPU-1",
    product_name="H200",
    mode="mps",
    memory_total_bytes=1,
    memory_used_bytes=0,
    sm_count=132,
    busy_ratio=0.0,
    software=True,
)
CURVE = ScalingCurve(
    sm_counts=(66, 132),
    iteration_ns=(4_000_000, 2_000_000),
    source="probed",
    gamma=0.25,
    recorded_sms=66,
    recorded_ns=4_000_000,
    knee_sms=132,
)
NOTHING = JobPart(
    job="j-2",
    display_name="",
    priority="batch",
    asked="",
    asked_sms=None,
    given_sms=132,
    owed_ratio=None,
    required_sms=None,
    proposed_sms=0,
    why="how it scales is not known: none of its iterations was recorded completely",
    scaling=None,
    doubt="none of its iterations was recorded completely",
    why_no_set="",
    predicted_ns=None,
    measured_ns=None,
)
KNOWN = JobPart(
    job="j-1",
    display_name="tr\x1bain",
    priority="latency",
    asked="50%",
    asked_sms=66,
    given_sms=66,
    owed_ratio=0.5,
    required_sms=100,
    proposed_sms=66,
    why="it asks for 66 SMs",
    scaling=CURVE,
    doubt="",
    why_no_set="",
    predicted_ns=3_900_000,
    measured_ns=4_000_000,
)


class Daemon:
    """A daemon's answers."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def partitions(self):
        return [
            Partition(gpu=GPU, part_sms=2, jobs=(KNOWN, NOTHING)),
            Partition(gpu=GPU, part_sms=None, jobs=()),
        ]


@pytest.fixture
def show(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("tandem.cli._output.open_client", Daemon)
        monkeypatch.setattr("tandem.cli.partition.open_client", Daemon)
        monkeypatch.setattr(sys, "argv", ["tandem", "partition", "show", *words])
        assert cli.main() == 0
        return capsys.readouterr().out

    return run


def test_every_gpu_has_its_jobs_and_every_job_its_reason(show):
    lines = show().splitlines()

    assert lines[0] == "gpu 0: H200 (software), mode mps, 132 SMs"
    assert lines[1].split() == [
        *("JOB", "NAME", "CLASS", "SM", "HAS", "KNEE", "LIMIT", "FITS"),
        *("PREDICTED", "ITERATION"),
    ]
    has = ["66", "(50%", "of", "time)", "132", "100", "66", "3.9", "ms", "4", "ms"]
    assert lines[2].split() == ["j-1", "tr?ain", "latency", "50%", *has]
    assert lines[3].split() == ["j-2", "-", "batch", "-", "132", "-", "-", "rest", "-", "-"]
    assert lines[4].endswith("66 SMs (probed from an iteration on 66 SMs, fitted with gamma 0.25)")
    assert "none of its iterations was recorded completely" in lines[5]
    assert len(lines) == 7


def test_a_job_that_can_have_no_set_is_proposed_nothing_and_told_why(show, monkeypatch):
    held = replace(NOTHING, why_no_set="a percentage holds it")
    partition = Partition(gpu=GPU, part_sms=8, jobs=(held,))
    monkeypatch.setattr(Daemon, "partitions", lambda _: [partition])

    lines = show().splitlines()

    assert lines[2].split() == ["j-2", "-", "batch", "-", "132", "-", "-", "-", "-", "-"]
    assert lines[-1] == "  j-2: it has no set of SMs: a percentage holds it"


def test_json_has_the_whole_curve(show):
    jobs = json.loads(show("--json"))[0]["jobs"]

    assert jobs[0]["scaling"]["iteration_ns"] == [4_000_000, 2_000_000]
    assert jobs[1]["scaling"] is None

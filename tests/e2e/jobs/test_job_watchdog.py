"""What the watchdog reports of real jobs, and that it stops reporting it; with short thresholds."""

import json
import re
import socket

import pytest
from running_job import until

CONFIG = """
[watchdog]
period_ms = 5
[watchdog.stall]
floor_s = 0.05
[watchdog.leak]
growth_bytes = 1_000_000
[watchdog.launch-bound]
span_s = 0.2
[watchdog.starvation]
span_s = 0.2
[watchdog.thrash]
span_s = 0.2
"""
# A job that this test keeps waiting does stall, by the wall clock.
NO_STALL = CONFIG.replace("floor_s = 0.05", "floor_s = 3600.0")
KIB = 1 << 10
STALLED = re.compile(r'tandem_job_finding{.*rule="stall".*} 1\.0')
HUNG = "the gpu has had the same work of it"


@pytest.fixture
def thresholds():
    return CONFIG


@pytest.fixture
def place(fresh_place, thresholds):
    path = fresh_place.folder / "config.toml"
    path.write_text(f'[metrics]\nlisten = "unix:{fresh_place.folder}/metrics"\n{thresholds}')
    fresh_place.start_daemon("--config", str(path))
    return fresh_place


@pytest.fixture
def trainer(place):
    job = place.job("trainer")
    job.do("exec('import training', globals())")
    return job


def shown(place):
    """Return the rules that `tandem ps` names beside the only job."""
    (job,) = json.loads(place.tandem("ps", "--json"))
    return [finding["rule"] for finding in job["findings"]]


def scraped(place):
    """Return what Prometheus would get."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place.folder / "metrics"))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return connection.makefile().read()


def found(client, *rules):
    """Wait for exactly these findings; asking the daemon in vain is cheaper than starting a CLI."""

    def are_found():
        return [finding.rule for finding in client.job("trainer").findings] == list(rules)

    until(are_found, what=f"findings {rules}", within_s=60)


@pytest.mark.slow
def test_a_silent_host_and_a_hung_gpu_are_told_apart_and_both_are_over(place, trainer):
    with place.client() as client:
        trainer.do("training.iterate(gpu, 30)")
        found(client, "stall")  # nobody tells it what to do next
        assert shown(place) == ["stall"]
        assert "its host submits nothing" in place.explain("trainer")
        assert STALLED.search(place.tandem("metrics"))
        assert STALLED.search(scraped(place))

        flag = trainer.do("training.hang(gpu)")
        until(
            lambda: any(HUNG in finding.what for finding in client.job("trainer").findings),
            what="it is the gpu's turn to be told of",
            within_s=60,
        )
        assert shown(place) == ["stall"]
        assert HUNG in place.explain("trainer")

        trainer.do(f"training.let_go({flag})")
        trainer.start("for_ever(lambda: training.iterate(gpu, 1))")
        found(client)
        assert shown(place) == []
        assert "stall: over" in place.explain("trainer")
        of_findings = place.tandem("events", "-k", "finding", "-k", "finding-over", "--json")
        told = [json.loads(line) for line in of_findings.splitlines()]
        assert [(one["kind"], one["rule"]) for one in told] == [
            ("finding", "stall"),
            ("finding-over", "stall"),
        ]


@pytest.mark.slow
def test_memory_that_every_iteration_keeps_is_found_until_it_is_given_back(place, trainer):
    with place.client() as client:
        kept = trainer.do(f"training.iterate(gpu, 120, leak_bytes={256 * KIB})")
        found_of_job = shown(place)
        assert "leak" in found_of_job
        text = place.explain("trainer")
        assert "grows by 256 KiB an iteration" in text
        assert "lasts for about" in text

        for address in kept:
            trainer.do(f"free({address})")
        trainer.do("training.iterate(gpu, 5)")
        until(
            lambda: "leak" not in [f.rule for f in client.job("trainer").findings],
            what="the leak is over",
        )
        assert "leak: over" in place.explain("trainer")


@pytest.mark.parametrize("thresholds", [NO_STALL], ids=["no stall"])
def test_a_job_that_just_trains_has_no_finding(place, trainer):
    with place.client() as client:
        for _ in range(5):
            trainer.do("training.iterate(gpu, 40)")
            assert client.job("trainer").findings == ()

"""Metrics, read back with Prometheus' own parser, and who may scrape them."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tandem.errors import UsageError
from tandemd import __version__
from tandemd.config.config import load
from tandemd.config.listen import loopback
from tandemd.core.energy import Metered
from tandemd.core.histogram import DECISIONS_NS, WAITS_NS, Histogram
from tandemd.core.model import JobClass, JobSpec, JobState
from tandemd.core.watchdog.finding import Finding
from tandemd.edges.gpus import Gpu
from tandemd.edges.metrics import (
    DAEMON_METRICS,
    DECISIONS,
    JOB_HISTOGRAMS,
    MOST_VERSIONS,
    PARTS,
    exposition,
    families,
    names,
)
from tandemd.edges.scrape import ScrapeServer
from tandemd.views import FindingView, GpuView, JobView, MetricsView, ProcessView

SECOND = 1_000_000_000
PATIENCE_S = 60
PACKAGING = Path(__file__).resolve().parents[3] / "packaging"
ALERTS = PACKAGING / "prometheus/tandem.rules.yml"
BOARD = json.loads((PACKAGING / "grafana/tandem.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
MS = 1_000_000
LEAK = Finding(rule="leak", since_ns=0, what="", why="", advice="")


def counted(*durations_ms, bounds_ns=WAITS_NS):
    histogram = Histogram(bounds_ns)
    histogram.add(int(each * MS) for each in durations_ms)
    return histogram.counted()


JOB = JobView(
    job_id=0x7F3A,
    uid=1000,
    user="ann",
    command="",
    spec=JobSpec(
        job_class=JobClass.BATCH, memory_bytes=2**30, slo_p99_ns=SECOND // 20, name='tr"ain\n'
    ),
    state=JobState.WAITING,
    reason="",
    created_wall_ns=0,
    processes=(
        ProcessView(
            pid=1,
            attached_wall_ns=0,
            device_bytes=1200,
            swapped_bytes=500,
            filed_bytes=200,
            ungated=False,
            dropped_records=3,
            shim_version="0.1.0",
        ),
    ),
    gpus=(0,),
    gpu_names=("0",),
    mode="time",
    gpu_ns=5 * SECOND,
    shared_ns=0,
    waits_ns=(0, 2 * SECOND, 0, SECOND // 2, 0),
    launches=70,
    moved_bytes=(800, 300),
    moved_ns=(2_000_000_000, 500_000_000),
    steps=0,
    iterations=7,
    audited_bytes=900,
    refused_by=(4, 2, 1),
    memory_wait_bytes=300,
    memory_wait_place=1,
    share=0.25,
    requests=120,
    p99_ns=45_000_000,
    marked_p99_ns=40_000_000,
    served=counted(4, 4, 60),
    missed=1,
    gate_waits=counted(10, 300, 20_000),
    preemptions=(11, 12, 13, 14, 15, 16, 17, 18),
    owed=0.3,
    set_sms=64,
    energy_mj=2500,
    findings=(FindingView(since_wall_ns=0, finding=LEAK),),
)
GPU = GpuView(
    gpu=Gpu(index=0, uuid=bytes(16), memory_total_bytes=10, memory_used_bytes=4),
    mode="time",
    busy=0.5,
    strangers=2,
    energy=Metered(total_mj=9000, unattributed_mj=1250),
    reserved_bytes=3,
)
VIEW = MetricsView(
    policy="fair",
    jobs=(JOB,),
    gpus=(GPU,),
    decisions=counted(0.02, 0.04, 3, bounds_ns=DECISIONS_NS),
    is_reload_good=True,
    is_state_kept=True,
)
ITS = {"job": "j-7f3a", "user": "ann", "class": "batch"}


def samples(view=VIEW):
    families = text_string_to_metric_families(exposition(view))
    return [sample for family in families for sample in family.samples]


def value(metric, *, view=VIEW, **labels):
    (found,) = [s.value for s in samples(view) if s.name == metric and s.labels == labels]
    return found


def of_jobs(**changes):
    """Return the same view, of a job with these changes."""
    return replace(VIEW, jobs=(replace(JOB, **changes),))


def test_figures_of_a_job_have_its_labels_and_base_units():
    assert value("tandem_job_gpu_time_seconds_total", **ITS) == 5
    assert value("tandem_job_wait_seconds_total", **ITS, reason="gate") == 2
    assert value("tandem_job_wait_seconds_total", **ITS, reason="presence") == 0.5
    assert value("tandem_job_memory_resident_bytes", **ITS) == 700
    assert value("tandem_job_memory_swapped_bytes", **ITS) == 500
    assert value("tandem_job_memory_filed_bytes", **ITS) == 200
    assert value("tandem_swap_bytes_total", **ITS, direction="out") == 800
    assert value("tandem_swap_bytes_total", **ITS, direction="in") == 300
    assert value("tandem_swap_seconds_total", **ITS, direction="out") == 2
    assert value("tandem_swap_seconds_total", **ITS, direction="in") == 0.5
    assert value("tandem_job_memory_audited_bytes", **ITS) == 900
    assert value("tandem_job_memory_waiting_bytes", **ITS) == 300
    assert value("tandem_job_memory_quota_bytes", **ITS) == 2**30
    assert value("tandem_job_dropped_records_total", **ITS) == 3
    assert value("tandem_job_iterations_total", **ITS) == 7
    assert value("tandem_job_share_ratio", **ITS) == 0.25
    assert value("tandem_job_share_target_ratio", **ITS) == 0.3
    assert value("tandem_partition_sm_count", **ITS) == 64
    assert value("tandem_job_request_p99_seconds", **ITS) == 0.045
    assert value("tandem_job_slo_seconds", **ITS) == 0.05
    assert value("tandem_job_slo_marked_seconds", **ITS) == 0.04


def test_refusals_of_memory_are_told_apart():
    assert value("tandem_job_oom_total", **ITS, decision="quota") == 4
    assert value("tandem_job_oom_total", **ITS, decision="device") == 2
    assert value("tandem_job_oom_total", **ITS, decision="line") == 1


def test_requests_are_counted_by_what_they_took_and_against_the_objective():
    def within(seconds):
        return value("tandem_job_slo_latency_seconds_bucket", **ITS, le=seconds)

    assert [within(le) for le in ("0.0025", "0.005", "0.05", "0.1", "+Inf")] == [0, 2, 2, 3, 3]
    assert value("tandem_job_slo_latency_seconds_count", **ITS) == 3
    assert value("tandem_job_slo_latency_seconds_sum", **ITS) == pytest.approx(0.068)
    assert value("tandem_job_slo_violations_total", **ITS) == 1


@pytest.mark.parametrize(
    ("slo_ms", "marked_ms", "asked", "marked", "missed"),
    [(50, 0, 0.05, None, 1), (0, 40, None, 0.04, 1), (0, 0, None, None, None)],
)
def test_an_objective_is_told_by_where_it_came_from(slo_ms, marked_ms, asked, marked, missed):
    spec = replace(JOB.spec, slo_p99_ns=slo_ms * MS)
    seen = samples(of_jobs(spec=spec, marked_p99_ns=marked_ms * MS))
    found = {sample.name: sample.value for sample in seen if sample.labels == ITS}

    assert found.get("tandem_job_slo_seconds") == asked
    assert found.get("tandem_job_slo_marked_seconds") == marked
    assert found.get("tandem_job_slo_violations_total") == missed


def test_lost_turns_are_told_apart_by_why():
    timely = ("class", "arrival", "quantum", "max_hold", "min_share")
    reasons = (*timely, "memory", "partner", "order")
    told = [value("tandem_job_preemptions_total", **ITS, reason=reason) for reason in reasons]

    assert told == [11, 12, 13, 14, 15, 16, 17, 18]


def test_waits_for_a_turn_are_counted_one_by_one():
    def within(seconds):
        return value("tandem_job_gate_wait_seconds_bucket", **ITS, le=seconds)

    assert [within(le) for le in ("0.005", "0.01", "0.25", "0.5", "25.0")] == [0, 1, 1, 2, 3]
    assert value("tandem_job_gate_wait_seconds_sum", **ITS) == pytest.approx(20.31)


def test_who_has_no_requests_or_no_objective_has_no_series_of_them():
    told = {
        sample.name for sample in samples(of_jobs(spec=JobSpec(), served=None, marked_p99_ns=0))
    }

    assert not any(name.startswith("tandem_job_slo_") for name in told)


@pytest.mark.parametrize("name", [*(metric.name for metric in JOB_HISTOGRAMS), DECISIONS])
def test_the_bounds_of_histograms_are_those_in_the_manual(name):
    manual = (Path(__file__).resolve().parents[3] / "docs/operations.md").read_text()
    (row,) = [line for line in manual.splitlines() if line.startswith(f"| `{name}`")]
    les = [s.labels["le"] for s in samples() if s.name == f"{name}_bucket"]

    (said,) = re.findall(r"[bB]ounds ([\de\-., ]+) s", row)
    assert [float(bound) for bound in said.split(", ")] == [float(le) for le in les[:-1]]
    assert les[-1] == "+Inf"


def test_findings_are_ones_and_the_other_rules_zeros():
    assert value("tandem_job_finding", **ITS, rule="leak") == 1
    assert value("tandem_job_finding", **ITS, rule="stall") == 0


def test_a_name_that_somebody_chose_is_escaped():
    name = {"name": 'tr"ain\n', "gpu": "0", "state": "waiting", "isolation": "time"}
    assert value("tandem_job_info", **ITS, **name) == 1


def test_the_queue_and_the_gpus_are_counted():
    gpu = {"gpu": "0", "UUID": "GPU-00000000-0000-0000-0000-000000000000"}

    classes = ("latency", "normal", "batch")
    assert [value("tandem_queue_depth", **{"class": name}) for name in classes] == [0, 0, 1]
    assert value("tandem_gpu_busy_ratio", **gpu) == 0.5
    assert value("tandem_gpu_memory_used_bytes", **gpu) == 4
    assert value("tandem_gpu_memory_reserved_bytes", **gpu) == 3
    assert value("tandem_gpu_unmanaged_processes", **gpu) == 2


def test_energy_is_counted_in_joules_and_where_none_is_known_there_is_no_series():
    gpu = {"gpu": "0", "UUID": "GPU-00000000-0000-0000-0000-000000000000"}

    assert value("tandem_job_energy_joules_total", **ITS) == 2.5
    assert value("tandem_gpu_energy_joules_total", **gpu) == 9
    assert value("tandem_gpu_unattributed_energy_joules_total", **gpu) == 1.25
    unknown = replace(of_jobs(energy_mj=None), gpus=(replace(GPU, energy=None),))
    assert not any("energy" in sample.name for sample in samples(unknown))


def shims(*versions):
    """Return what is reported for processes with these shim versions."""
    process = JOB.processes[0]
    view = of_jobs(processes=tuple(replace(process, shim_version=each) for each in versions))
    told = [s for s in samples(view) if s.name == "tandem_shim_connected"]
    return {sample.labels["version"]: sample.value for sample in told}


def test_processes_are_counted_by_the_version_of_their_shim():
    assert shims("0.1.0", "0.0.9", "0.1.0") == {"0.1.0": 2, "0.0.9": 1}
    assert shims() == {__version__: 0}


def test_of_more_versions_than_there_should_be_there_are_no_more_series():
    many = [f"9.9.{number}" for number in range(MOST_VERSIONS + 5)]

    told = shims(*many, "0.1.0", "0.1.0")

    assert (told["0.1.0"], told["other"]) == (2, 6)
    assert len(told) == MOST_VERSIONS + 1


def test_decisions_are_counted_by_what_they_took():
    def within(seconds):
        return value("tandem_scheduler_decision_seconds_bucket", le=seconds)

    assert [within(le) for le in ("1e-05", "2.5e-05", "5e-05", "0.005")] == [0, 1, 2, 3]
    assert value("tandem_scheduler_decision_seconds_sum") == pytest.approx(0.00306)


def test_a_configuration_that_was_wrong_is_a_zero():
    told = replace(VIEW, is_reload_good=False)

    assert value("tandem_config_reload_success") == 1
    assert value("tandem_config_reload_success", view=told) == 0


def test_a_state_file_that_cannot_be_written_is_a_zero():
    told = replace(VIEW, is_state_kept=False)

    assert value("tandem_state_write_success") == 1
    assert value("tandem_state_write_success", view=told) == 0


def test_every_name_is_rendered_and_in_the_manual_and_no_other():
    manual = (Path(__file__).resolve().parents[3] / "docs/operations.md").read_text()
    section = manual.partition("## Metrics")[2].partition("\n## ")[0]

    assert {sample.name for sample in samples()} == set(names())
    assert set(re.findall(r"`(tandem_\w+)`", section)) == set(families())


def test_alerts_ask_for_figures_and_labels_that_there_are():
    """`promtool test rules` checks what the alerts evaluate to (packaging/prometheus)."""
    asked = re.findall(r"(tandem_\w+)(?:\{(\w+)\W)?", ALERTS.read_text())
    labels = {sample.name: sample.labels.keys() for sample in samples()}

    assert len(asked) > 5
    assert {name for name, _ in asked} <= labels.keys()
    assert all(label in labels[name] for name, label in asked if label)


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_alerts_are_raised_for_what_they_are_about():
    command = ["promtool", "test", "rules", "tandem.rules.test.yml"]
    done = subprocess.run(command, cwd=ALERTS.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def asked(expr):
    """Return the metrics that a query names, and the labels that it or its legend needs."""
    matched = re.findall(r"(\w+)\s*=~?", " ".join(re.findall(r"\{([^}]*)\}", expr)))
    grouped = re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expr)))
    joined = re.findall(r"\w+", " ".join(re.findall(r"group_left \(([^)]*)\)", expr)))
    return set(re.findall(r"tandem_\w+", expr)), {*matched, *grouped, *joined} - {"instance"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_figures_and_labels_that_there_are(panel):
    labels = {sample.name: sample.labels.keys() for sample in samples()}

    for target in panel["targets"]:
        names, needed = asked(target["expr"])
        assert names
        assert names <= labels.keys()
        needed |= set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"}
        assert needed <= set().union(*(labels[name] for name in names))


def test_the_board_takes_everything_from_the_source_that_is_chosen():
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    source, *queries = BOARD["templating"]["list"]
    targets = [target for panel in PANELS for target in panel["targets"]]

    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert all(one["datasource"] == chosen for one in [*PANELS, *targets, *queries])
    for query in queries:
        assert re.findall(r"tandem_\w+", query["query"]["query"])[0] in families()


def test_no_panel_of_the_board_lies_on_another():
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24  # the width of Grafana's grid
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == ["GPUs", "Jobs", "Objectives", "Memory and swap", "Daemon"]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_queries_of_the_board_are_ones_that_prometheus_understands(tmp_path):
    exprs = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [
        {"record": f"query:{number}", "expr": expr.replace("$__rate_interval", "1m")}
        for number, expr in enumerate(exprs)
    ]
    path = tmp_path / "rules.json"  # JSON is valid YAML
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))

    command = ["promtool", "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_without_jobs_there_are_only_figures_of_the_daemon():
    empty = samples(replace(VIEW, jobs=(), gpus=()))

    of_daemon = {metric.name for metric in DAEMON_METRICS} | {DECISIONS + part for part in PARTS}
    assert {sample.name for sample in empty} == of_daemon


@pytest.fixture
def serving():
    """Starts servers, and stops all of them after the test."""
    started = []

    def serve(listen, render=lambda: "figures 1\n"):
        server = ScrapeServer(listen, render=render)
        thread = threading.Thread(target=server.run)
        thread.start()
        started.append((server, thread))
        return server

    yield serve
    for server, thread in started:
        server.stop()
        thread.join()


def has_ip6():
    with socket.socket(socket.AF_INET6) as probe, contextlib.suppress(OSError):
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_prometheus_can_ask_on_loopback(serving, host):
    if host == "[::1]" and not has_ip6():
        pytest.skip("this machine has no ::1")
    address = serving(f"{host}:0").address
    assert address.startswith(f"{host}:")
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)

    connection.request("GET", "/metrics")
    answer = connection.getresponse()

    assert (answer.status, answer.read()) == (200, b"figures 1\n")
    assert answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
    connection.close()


def answer_of(path, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.sendall(f"GET {request} HTTP/1.0\r\n\r\n".encode())
        return connection.makefile("rb").read()


def test_or_on_a_unix_socket_and_nothing_else_is_there(serving):
    with tempfile.TemporaryDirectory() as folder:  # pytest's names are too long for a socket
        path = f"{folder}/metrics.sock"
        serving(f"unix:{path}")

        assert Path(path).stat().st_mode & 0o777 == 0o660
        assert answer_of(path, "/metrics").endswith(b"\r\n\r\nfigures 1\n")
        assert b" 404 " in answer_of(path, "/")


def test_a_file_in_place_of_the_socket_is_left_alone_and_a_socket_is_not(serving):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sock"
        path.write_text("precious")
        with pytest.raises(OSError, match="in use"):
            ScrapeServer(f"unix:{path}", render=str)
        assert path.read_text() == "precious"

        path.unlink()
        with socket.socket(socket.AF_UNIX) as left_over:
            left_over.bind(str(path))
        assert answer_of(serving(f"unix:{path}").address.removeprefix("unix:"), "/metrics")


def test_a_socket_where_somebody_listens_is_left_to_him(serving):
    with tempfile.TemporaryDirectory() as folder:
        listen = f"unix:{folder}/m"
        serving(listen)

        with pytest.raises(OSError, match="in use"):
            ScrapeServer(listen, render=str)

        assert answer_of(f"{folder}/m", "/metrics").endswith(b"figures 1\n")


def test_no_socket_stays_behind():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sock"
        server = ScrapeServer(f"unix:{path}", render=str)
        thread = threading.Thread(target=server.run)
        thread.start()
        server.stop()
        thread.join()

        assert not path.exists()


def test_a_scheduler_that_does_not_answer_is_told(serving):
    def late():
        raise TimeoutError

    with tempfile.TemporaryDirectory() as folder:
        serving(f"unix:{folder}/m", late)

        assert b" 503 " in answer_of(f"{folder}/m", "/metrics")


@pytest.mark.parametrize(
    "listen",
    [
        *("0.0.0.0:9446", "192.0.2.1:9446", "localhost", "127.0.0.1:x", "127.0.0.1:70000", ":1"),
        *("::1:9446", "[127.0.0.1]:9446", "[::]:9446", "[fe80::1]:9446", "[::1]"),
    ],
)
def test_nothing_listens_beyond_this_machine(listen, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(f'[metrics]\nlisten = "{listen}"\n')

    with pytest.raises(UsageError, match="loopback"):
        loopback(listen)
    with pytest.raises(UsageError, match=r"metrics\.listen: .*loopback"):
        load(path)

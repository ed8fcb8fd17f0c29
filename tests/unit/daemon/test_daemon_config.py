"""What a configuration may say, also about GPUs and people that do not exist here."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog

from tandem.errors import UsageError
from tandemd import __main__ as program
from tandemd.config.config import load, reserves_on, unknown_names
from tandemd.daemon import Daemon
from tandemd.edges.gpus import Gpu, Instance

GPU = Gpu(index=0, uuid=bytes(16))
SLICE = Gpu(index=64, uuid=bytes([1] * 16), instance=Instance(gpu=1, gpu_instance=2))


@pytest.fixture
def written(tmp_path):
    def write(*names):
        path = tmp_path / "config.toml"
        path.write_text("".join(f"[gpu.'{name}']\nmode = 'time'\n" for name in names))
        return load(path)

    return write


def here(monkeypatch, *gpus):
    inventory = SimpleNamespace(gpus=lambda: gpus)
    monkeypatch.setattr(program, "find_inventory", lambda: inventory)
    return inventory


def test_sections_of_gpus_that_are_here_are_right(monkeypatch, written):
    here(monkeypatch, GPU, SLICE)
    cut = "GPU-aaaaaaaa-0000-0000-0000-000000000000"  # possibly the GPU that is cut

    program.check(written("*", "0", "1", GPU.uuid_text, SLICE.uuid_text, cut))


def test_the_check_refuses_sections_of_gpus_that_are_not_here(monkeypatch, written):
    other = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    here(monkeypatch, GPU)

    with pytest.raises(
        UsageError, match=f"gpu.7, gpu.{other}: this machine has no such gpu; it has 0, whose"
    ):
        program.check(written("0", "7", other))


def test_each_fault_is_told_as_an_error(monkeypatch, tmp_path, capsys):
    here(monkeypatch, GPU)
    monkeypatch.setattr(program, "set_up_logging", lambda _: None)  # it would hold on to our stderr
    path, missing = tmp_path / "config.toml", tmp_path / "missing"
    path.write_text(f'[gpu.7]\nmode = "time"\n[memory]\nswap_dir = "{missing}"\n')

    with pytest.raises(SystemExit) as end:
        program.main(["--check-config", "--config", str(path)])

    first, second = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert first.startswith("error: gpu.7: this machine has no such gpu")
    assert second == f"error: memory.swap_dir: '{missing}' is not a directory"


def kept_free(tmp_path, *said):
    path = tmp_path / "config.toml"
    tables = (f"[gpu.'{name}']\n{key} = '{value}'\n" for name, key, value in said)
    path.write_text("".join(tables))
    return load(path)


def test_each_key_of_a_gpu_is_said_by_its_uuid_or_its_index_or_of_all(tmp_path):
    config = kept_free(
        tmp_path,
        ("*", "reserve_memory", "2GiB"),
        ("0", "mode", "mps"),
        (SLICE.uuid_text, "reserve_memory", "0"),
    )

    sizes = {
        gpu.index: config.reserve_of(gpu.index, gpu.uuid_text).size_bytes for gpu in (GPU, SLICE)
    }
    assert sizes == {GPU.index: 2 << 30, SLICE.index: 0}
    assert config.reserve_of(0, GPU.uuid_text).key == "gpu.*.reserve_memory"
    assert (config.mode_of(0, GPU.uuid_text), config.mode_of(7, "")) == ("mps", "auto")


@pytest.mark.parametrize("said", ["half", "20", "-1GiB", "10%"])
def test_a_reserve_that_means_nothing_is_refused(tmp_path, said):
    with pytest.raises(UsageError, match=r"gpu\.0\.reserve_memory: reserve_memory"):
        kept_free(tmp_path, ("0", "reserve_memory", said))


def test_a_reserve_that_leaves_jobs_nothing_is_refused_with_what_to_do(monkeypatch, tmp_path):
    small = replace(GPU, memory_total_bytes=1 << 30)
    here(monkeypatch, small)
    too_much = kept_free(tmp_path, ("*", "reserve_memory", "1GiB"))

    with pytest.raises(UsageError) as refused:
        program.check(too_much)
    assert str(refused.value) == (
        "gpu.*.reserve_memory: 1 GiB is all that gpu 0 has (1 GiB), so nothing is left for jobs; "
        "write less, or set reserve_memory for this gpu alone in [gpu.0]"
    )
    assert reserves_on(too_much, [small]) == {}  # such a GPU may come later

    alone = ("0", "reserve_memory", "100MiB")
    program.check(kept_free(tmp_path, ("*", "reserve_memory", "1GiB"), alone))


def test_where_no_gpu_is_seen_nothing_is_known_of_sections(monkeypatch, written):
    here(monkeypatch)

    program.check(written("7"))


def test_the_daemon_warns_of_them_and_goes_on(monkeypatch, written):
    config = written("7")
    daemon = Daemon(config=config, directory=None, soft_clock=False)
    daemon._inventory = here(monkeypatch, GPU)

    with structlog.testing.capture_logs() as logs:
        daemon._warn_of_unknown(config)

    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "gpu.7: this machine has no such gpu" in logs[0]["reason"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[scheduler]\nquantum_ms = '10'\n", "scheduler.quantum_ms"),
        ("[watchdog]\nenabled = 'off'\n", "watchdog.enabled"),
        ("[watchdog.stall]\nfloor_s = '60'\n", "watchdog.stall.floor_s"),
        ("[class.batch]\nmemory_swap = 'yes'\n", "class.batch.memory_swap"),
        ("[metrics]\nlisten = 'unix:metrics.sock'\n", "metrics.listen"),
        ("[metrics]\nhpc_job_mapping_dir = 'jobs'\n", "metrics.hpc_job_mapping_dir"),
    ],
)
def test_what_is_of_another_kind_is_refused_with_its_key(tmp_path, text, key):
    path = tmp_path / "config.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=f"^{path}: {key}: "):
        load(path)


def test_a_whole_number_is_as_good_as_one_with_a_point(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[scheduler]\nquantum_ms = 5\n")

    assert load(path).options().quantum_ns == 5_000_000


def test_limits_of_people_who_are_not_known_are_told_and_no_error(monkeypatch, tmp_path, capsys):
    here(monkeypatch)
    path = tmp_path / "config.toml"
    known = ("user.root", "user.0", "group.root")
    many_digits = "9" * 5000
    unknown = ("user.nosuchuser", f"user.{many_digits}", 'user."\\u0000"', "group.nosuchgroup")
    tables = (f"[limits.{name}]\nmax_class = 'latency'\n" for name in (*known, *unknown))
    path.write_text("".join(tables))

    program.check(load(path))

    told = ", ".join(f"limits.{name}" for name in unknown).replace('"\\u0000"', "?")
    assert capsys.readouterr().err.startswith(f"warning: {told}: this machine knows no such")


@pytest.mark.parametrize(
    ("table", "told"),
    [("", ""), ("admin_group = 'root'", ""), ("admin_group = 'nosuchgroup'", "nosuchgroup")],
)
def test_a_group_of_admins_that_is_not_known_is_told(table, told, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(f"[daemon]\n{table}\n")

    said = unknown_names(load(path))

    assert said == (told and f"daemon.admin_group = '{told}'{said[said.index(': this machine') :]}")


def test_a_runtime_directory_without_a_name_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        program.parse(["--runtime-dir", ""])

    assert "--runtime-dir: it is empty" in capsys.readouterr().err


def test_the_daemon_does_not_wait_for_a_user_database_to_warn_of_nobody(monkeypatch, written):
    answers, told = threading.Event(), threading.Event()

    def slowly(_config):
        answers.wait(60)
        return "limits.user.nosuchuser"

    class Log:
        def warning(self, *_, reason):
            assert (reason, answers.is_set()) == ("limits.user.nosuchuser", True)
            told.set()

    monkeypatch.setattr("tandemd.daemon.unknown_names", slowly)
    monkeypatch.setattr("tandemd.daemon.log", Log())
    daemon = Daemon(config=written(), directory=None, soft_clock=False)
    daemon._inventory = here(monkeypatch, GPU)

    daemon._warn_of_unknown(written())  # must return at once
    answers.set()

    assert told.wait(60)

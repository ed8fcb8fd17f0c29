"""What a daemon logs when it reads its configuration again, and when."""

from types import SimpleNamespace

import pytest
import structlog

from tandem.errors import UsageError
from tandemd.config.config import Config, load
from tandemd.config.restarts import AT_START, keys_for_restart
from tandemd.core.model import Options
from tandemd.daemon import Daemon
from tandemd.edges.gpus import Gpu

GPUS = (Gpu(index=0, uuid=bytes(16)), Gpu(index=1, uuid=bytes([1] * 16)))
ALL_OF_THEM = """
[daemon]
max_processes_per_uid = 2
state = "none"
privacy = "own-only"
[metrics]
hpc_job_mapping_dir = "/x"
listen = "127.0.0.1:9446"
[scheduler]
policy = "fair"
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load(path)

    return read


def test_what_needs_a_restart_is_compared_with_the_start(read):
    assert keys_for_restart(Config(), read(ALL_OF_THEM)) == list(AT_START)
    assert keys_for_restart(read(ALL_OF_THEM), read(ALL_OF_THEM)) == []


def running(begun, errands, change_options=lambda *_, **__: (), mps=None):
    """A running daemon, as far as a reload needs one."""
    daemon = Daemon(config=begun, directory=None, soft_clock=False)
    nothing = SimpleNamespace(want=lambda *_, **__: None, use=lambda _: None, of=lambda _: {})
    daemon._inventory = SimpleNamespace(gpus=lambda: GPUS, refresh=lambda: None)
    daemon._mps, daemon._proofs, daemon._host = mps, nothing, nothing
    daemon._sessions, daemon._desk = SimpleNamespace(), SimpleNamespace(rights=SimpleNamespace())
    daemon._remembered = SimpleNamespace(keep_most_past=lambda _: None)
    daemon._look_at_gpus = daemon._regard_gpus = lambda: None
    daemon._warn_of_unknown = lambda _: None  # it starts a thread that may outlive the test
    daemon._options = daemon._with_sets = lambda given: given
    daemon._asking_for_sets = list
    daemon._loop = SimpleNamespace(
        clock=SimpleNamespace(now_ns=lambda: 1),
        post=errands.append,
        scheduler=SimpleNamespace(
            change_options=change_options, jobs={}, options=Options(policy="throttle")
        ),
        watchdog=SimpleNamespace(change=lambda _: None),
    )
    return daemon


def test_it_is_read_again_once_it_is_applied_and_not_before(read):
    errands = []
    daemon = running(Config(), errands)

    with structlog.testing.capture_logs() as logs:
        daemon.reconfigure(read(ALL_OF_THEM))
        assert [(entry["log_level"], entry.get("keys")) for entry in logs] == [
            ("warning", ", ".join(AT_START))
        ]
        [apply] = errands
        apply()

    assert (logs[1]["event"], logs[1]["policy"]) == ("configuration read again", "fair")
    assert logs[1]["before"] == "throttle"  # set by hand: no key of the file has changed
    assert daemon._desk.is_reload_good


def test_a_wrong_one_counts_behind_a_good_one_that_is_not_in_force_yet(read):
    errands = []
    daemon = running(Config(), errands)

    daemon.reconfigure(read(ALL_OF_THEM))
    daemon.note_failed_reload()
    for apply in errands:
        apply()

    assert not daemon._desk.is_reload_good


def test_the_log_says_which_keys_are_others_now(read):
    first = read("[limits.user.ann]\nmax_memory = '50%'\n[scheduler]\nquantum_ms = 5")
    then = read("[limits.user.bob]\nmax_memory = '50%'\n[class.batch]\nweight = 2")

    def told(before, after):
        errands = []
        daemon = running(before, errands)
        with structlog.testing.capture_logs() as logs:
            daemon.reconfigure(after)
            errands[0]()
        return logs[-1]["changed"]

    assert told(first, then) == (
        "class.batch.memory_swap, class.batch.preemptible, class.batch.weight, "
        "limits.user.ann.max_memory, limits.user.bob.max_memory, scheduler.quantum_ms"
    )
    assert told(first, first) == "nothing"


def test_what_fails_half_way_is_not_said_to_be_read_and_rights_are_the_new_ones(read):
    def fail(*_, **__):
        raise ValueError("nobody thought of this")

    errands = []
    daemon = running(Config(), errands, fail)

    with structlog.testing.capture_logs() as logs:
        daemon.reconfigure(read("[daemon]\nprivacy = 'own-only'\nadmin_group = 'root'"))
        with pytest.raises(ValueError, match="nobody thought"):
            errands[0]()

    assert not logs
    assert not daemon._desk.is_reload_good
    rights = daemon._desk.rights
    assert (rights.privacy, rights.limits.admin_group) == ("own-only", "root")


def test_one_that_leaves_jobs_nothing_of_a_gpu_is_refused_and_nothing_changes(read):
    errands = []
    daemon = running(Config(), errands)
    small = Gpu(index=0, uuid=bytes(16), memory_total_bytes=1 << 30)
    daemon._inventory = SimpleNamespace(gpus=lambda: (small,))

    with pytest.raises(UsageError, match=r"gpu\.0\.reserve_memory: 2 GiB is all that gpu 0 has"):
        daemon.reconfigure(read("[gpu.0]\nreserve_memory = '2GiB'"))

    assert (errands, daemon._config) == ([], Config())


def keys_told(begun, said, **options):
    daemon = running(begun, [], **options)
    with structlog.testing.capture_logs() as logs:
        daemon.reconfigure(said)
    return [entry["keys"] for entry in logs]


def test_mps_that_was_not_wanted_at_the_start_needs_a_restart(read):
    none, first = read(""), read("[gpu.0]\nmode = 'mps'")
    both = read("[gpu.'*']\nmode = 'mps+green'")

    assert keys_told(none, both) == ["gpu.*.mode"]
    assert keys_told(first, both, mps=object()) == ["gpu.*.mode"]
    assert keys_told(both, first, mps=object()) == []
    assert keys_told(none, both, mps=object()) == []  # an MPS that already ran serves them all

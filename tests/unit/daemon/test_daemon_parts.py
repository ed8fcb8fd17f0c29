import socket
from pathlib import Path

import pytest

from tandem.errors import UsageError
from tandemd.config.config import Config, load
from tandemd.config.limits import Limit, Limits
from tandemd.config.schema import SchedulerTable
from tandemd.core.memory.ceilings import NONE
from tandemd.core.model import JobClass, Options
from tandemd.core.watchdog.rule import RULES
from tandemd.core.watchdog.rules.launch_bound import LaunchBound
from tandemd.core.watchdog.watchdog import Watch
from tandemd.edges.gpus import Gpu, GpuIndex, Instance, uuid_bytes
from tandemd.edges.notify import notify, watchdog_period_s
from tandemd.identities import Identities, Identity
from tandemd.observers.recent import Recent
from tandemd.runtime import runtime_dir

LATENCY, NORMAL, BATCH = JobClass.LATENCY, JobClass.NORMAL, JobClass.BATCH
SECOND = 1_000_000_000


def limits(**options):
    people = {7: ("ann", {"serving", "staff"}), 8: ("bob", {"staff"})}

    def identify(uid):
        user, groups = people.get(uid, (str(uid), set()))
        return Identity(uid=uid, user=user, groups=frozenset(groups))

    identities = Identities(identify)
    for uid in people:
        identities.of(uid)
    return Limits(identities=identities, **options)


def test_a_class_above_the_ceiling_is_clamped_and_one_below_is_kept():
    assert limits().clamp(8, LATENCY) is NORMAL
    assert limits().clamp(8, BATCH) is BATCH


def test_root_and_the_daemons_own_uid_have_no_ceiling():
    some = limits(trusted_uids=frozenset({0, 8}))

    assert some.clamp(0, LATENCY) is some.clamp(8, LATENCY) is LATENCY


def test_the_most_generous_limit_that_names_somebody_holds():
    some = limits(
        users={"ann": Limit(job_class=BATCH)}, groups={"serving": Limit(job_class=LATENCY)}
    )

    assert some.ceiling(7) is LATENCY
    assert some.ceiling(8) is NORMAL


def test_a_user_can_be_named_by_number_and_be_given_less_than_others():
    assert limits(users={"8": Limit(job_class=BATCH)}).ceiling(8) is BATCH


def of_config(tmp_path, text):
    """Limits of ann (7, of serving and staff) and bob (8, of staff), as the file sets them."""
    (tmp_path / "config.toml").write_text(text)
    known = limits().identities
    return load(tmp_path / "config.toml").limits_for(0, known)


def test_of_memory_the_most_generous_that_names_somebody_holds_on_each_gpu(tmp_path):
    some = of_config(
        tmp_path,
        """
[limits.default]
max_memory = "10%"
[limits.user.ann]
max_class = "batch"
[limits.group.serving]
max_memory = "40%"
[limits.group.staff]
max_class = "latency"
max_memory = "20GiB"
[limits.user.9]
max_memory = "none"
""",
    )
    ann, bob, nine, stranger, root = (some.memory_ceiling(uid) for uid in (7, 8, 9, 10, 0))

    assert [ann.of(gib << 30) >> 30 for gib in (40, 80)] == [20, 32]
    assert ann.key == "limits.group.staff.max_memory, limits.group.serving.max_memory"
    assert [bob.of(gib << 30) >> 30 for gib in (40, 80)] == [20, 20]
    assert bob.key == "limits.group.staff.max_memory"
    assert (stranger.percent, stranger.key) == (10, "limits.default.max_memory")
    assert nine == root == NONE  # nobody has asked the user database about them
    assert (some.ceiling(7), some.ceiling(8)) == (LATENCY, LATENCY)
    assert some.why_class(7) == "limits.group.staff.max_class"
    assert "has not said yet" in some.why_class(9)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('"half"', "max_memory 'half' is not a number with a unit"),
        ('"0"', "max_memory '0' would leave no memory; for no limit write"),
        ('"20"', "max_memory '20'"),
        ('"120%"', "max_memory '120%'"),
        ("50", "valid string"),
    ],
)
def test_a_limit_of_memory_that_means_nothing_is_refused(tmp_path, said, told):
    key = "limits.group.staff.max_memory"
    with pytest.raises(UsageError, match=f"{key}: ") as refused:
        of_config(tmp_path, f"[limits.group.staff]\nmax_memory = {said}\n")

    assert told in str(refused.value)


def test_admins_are_looked_up_by_group():
    some = limits(admin_group="serving")

    assert (some.is_admin(7), some.is_admin(8), some.is_admin(0)) == (True, False, True)


def test_an_empty_configuration_is_the_cores_own_defaults():
    assert Config().options() == Options()


@pytest.mark.parametrize("key", SchedulerTable.model_fields)
def test_each_setting_of_the_scheduler_reaches_the_core(key):
    """A setting that `options` forgot would be read, checked and documented, but have no effect."""
    usual = getattr(SchedulerTable(), key)
    if isinstance(usual, str):  # no other value can be made up
        other = {"policy": "fair", "lane_order": "pack"}[key]
    else:
        other = not usual if isinstance(usual, bool) else type(usual)(usual / 2)

    assert Config().overridden({key: other}).options() != Options()


def test_the_command_line_overrides_the_file_within_its_bounds():
    assert Config().overridden({"policy": "fifo"}).options().policy == "fifo"
    with pytest.raises(UsageError, match="window_segments"):
        Config().overridden({"window_segments": -1})


def test_units_of_the_file_become_nanoseconds(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        "[scheduler]\nquantum_ms = 2.5\nmax_hold_s = 3\nlinger_us = 7\nlinger_max_us = 8\n"
    )

    options = load(path).options()

    assert (options.quantum_ns, options.max_hold_ns) == (2_500_000, 3 * SECOND)
    assert (options.linger_ns, options.linger_limit_ns) == (7_000, 8_000)


def test_a_class_may_be_given_one_of_its_settings(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[class.batch]\nmemory_swap = true\n[class.latency]\nweight = 7\n")

    options = load(path).options()

    assert options.swappable_classes == {BATCH}
    assert [options.weight(job_class) for job_class in (LATENCY, BATCH)] == [7, 1]


def test_a_missing_file_that_was_named_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "absent.toml")


def test_thresholds_of_the_watchdog_are_the_rules_own_unless_the_file_says_otherwise(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        "[watchdog]\nperiod_ms = 250\n[watchdog.launch-bound]\nspan_s = 2.5\n"
        "[watchdog.leak]\nenabled = false\n"
    )

    watch = load(path).watchdog.watch()

    assert Config().watchdog.watch() == Watch()
    assert watch.period_ns == 250_000_000
    assert watch.rules["launch-bound"] == LaunchBound(span_ns=2_500_000_000)
    assert watch.rules.keys() == RULES.keys() - {"leak"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[watchdog.leaks]\n", "watchdog.leaks: unknown key"),
        ("[watchdog.stall]\nfloor = 3\n", "watchdog.stall.floor: unknown key"),
        ("[watchdog.stall]\nfloor_s = 0\n", "watchdog.stall.floor_s: .* greater than 0"),
        ("[watchdog.thrash]\nlost_ratio = 2\n", "watchdog.thrash.lost_ratio: .* equal to 1"),
        ("[watchdog]\nperiod_ms = 5\n", "span_s is 2000 times period_ms; at most 600"),
    ],
)
def test_wrong_thresholds_are_named(tmp_path, text, told):
    path = tmp_path / "config.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=told):
        load(path)


def test_the_watchdog_can_be_switched_off(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[watchdog]\nenabled = false\nperiod_ms = 1\n")

    assert not load(path).watchdog.watch().rules


def test_shares_are_of_the_last_second():
    recent = Recent()
    for tenth in range(31):
        recent.look({"a": tenth * SECOND // 20, "b": 0}, tenth * SECOND // 10)

    assert recent.share("a") == pytest.approx(0.5, abs=0.01)
    assert (recent.share("b"), recent.share("unknown")) == (0, 0)


def test_shares_are_none_before_there_were_two_looks():
    recent = Recent()
    recent.look({"a": 5}, 0)

    assert recent.share("a") == 0


def test_gpus_are_known_by_uuid_and_new_ones_get_the_next_index():
    known = uuid_bytes("GPU-00112233-4455-6677-8899-aabbccddeeff")
    index = GpuIndex([Gpu(index=0, uuid=known)])

    assert known == bytes.fromhex("00112233445566778899aabbccddeeff")
    assert index.of([known]) == 0
    assert index.of([b"x" * 16]) == index.of([b"x" * 16]) == 1
    assert index.of([]) == 0


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("", ""),
        ("0", ""),
        ("0,1", "1"),
        ("3", "3"),
        ("tesla", "tesla"),
        ("GPU-3a3A", ""),
        ("GPU-0011", "GPU-0011"),
        ("GPU-3a,MIG-deadbeef", "MIG-deadbeef"),
        ("MIG-GPU-0011/2/0", ""),
    ],
)
def test_a_gpu_that_is_not_there_is_missed_where_all_are_listed(lists, names, missing):
    index = GpuIndex([Gpu(index=0, uuid=b":" * 16)] if lists else [])

    assert index.missing(names) == (missing if lists else "")
    assert index.missing("0:9") == "0:9"


def test_instances_are_known_by_their_gpu_and_number_and_come_and_go():
    small, large = (
        Gpu(index=place.index, uuid=bytes([place.gpu_instance]) * 16, instance=place)
        for place in (Instance(gpu=0, gpu_instance=1), Instance(gpu=0, gpu_instance=2))
    )
    index = GpuIndex([small, large, Gpu(index=1, uuid=b"1" * 16)])

    assert (small.name, large.name) == ("0:1", "0:2")
    assert str(Instance(gpu=3, gpu_instance=2, compute_instance=1)) == "3:2:1"
    assert index.named("0:2") == index.named(large.uuid_text) == {large.index}
    assert index.named("0") == {small.index}  # as CUDA interprets it
    assert index.named("1") == {1}
    whole = "GPU-31313131-3131-3131-3131-313131313131"
    assert index.by_uuid("1, 0,GPU-3a,7") == f"{whole},0,GPU-3a,7"
    assert index.named(str(large.index)) == index.named("0:3") == frozenset()
    assert index.of([b"x" * 16]) == 2  # not an instance's index

    index.learn([Gpu(index=0, uuid=b"0" * 16)])

    assert index.named("0") == {0}
    assert index.instance("0:2") is None
    assert index.named(large.uuid_text) == frozenset()
    assert index.of([b"x" * 16]) == 2


def test_a_uuid_that_is_none_is_zeros():
    assert uuid_bytes("GPU-nonsense") == bytes(16)


def test_the_service_manager_hears_and_its_absence_is_survived(tmp_path, monkeypatch):
    path = tmp_path / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        notify("READY=1")
        assert manager.recv(64) == b"READY=1"

    notify("STOPPING=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("STOPPING=1")


def test_the_watchdog_is_fed_twice_as_often_as_asked(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "10000000")
    assert watchdog_period_s() == 5
    monkeypatch.delenv("WATCHDOG_USEC")
    assert watchdog_period_s() is None


@pytest.mark.parametrize(
    ("environment", "uid", "path"),
    [
        ({"TANDEM_RUNTIME_DIR": "/a", "RUNTIME_DIRECTORY": "/b"}, 0, "/a"),
        ({"RUNTIME_DIRECTORY": "/b:/c", "XDG_RUNTIME_DIR": "/x"}, 0, "/b"),
        ({"XDG_RUNTIME_DIR": "/x"}, 5, "/x/tandem"),
        ({}, 0, "/run/tandem"),
        ({}, 5, "/tmp/tandem-5"),
    ],
)
def test_the_runtime_directory_is_looked_for_in_one_order(environment, uid, path):
    assert runtime_dir(environment, uid=uid) == Path(path)

"""Jobs on MIG instances: devices of their own, found through NVML."""

import json
import subprocess
import sys

import pytest
from running_job import start_together, until

SMALL, LARGE = "0:1", "0:2"  # as `tandem gpus` calls them
# Kernels that take milliseconds: 100 blocks that read 100 MB each.
LONG = """for_ever(lambda: (
    ok(gpu.launch("slow_affine", (word, 2, 1), (None,) + (ctypes.c_uint,) * 2, grid=100)),
    ok(cu.cuCtxSynchronize())))""".replace("\n", " ")


@pytest.fixture
def cut(fresh_place):
    """A place whose GPU has a small and a large instance."""
    fresh_place.env |= {
        "TANDEM_SOFTGPU_PROFILE": "h200",
        "TANDEM_SOFTGPU_MIG": "1g.18gb,3g.71gb",
    }
    fresh_place.start_daemon(*fresh_place.configured(policy='"fair"'))
    return fresh_place


def overlap(place, job, other):
    """Tell whether the jobs' kernels ever ran at once, after each has run for a while."""

    def kernels(which):
        return [row for row in place.ran(which.pid) if row["kind"] == "kernel"]

    until(lambda: min(len(kernels(job)), len(kernels(other))) > 20, what="both have run")
    return any(
        a["t_start_ns"] < b["t_end_ns"] and b["t_start_ns"] < a["t_end_ns"]
        for a in kernels(job)
        for b in kernels(other)
    )


def test_instances_are_listed_with_their_memory_and_sms(cut):
    listed = json.loads(cut.tandem("gpus", "--json"))

    assert [(gpu["name"], gpu["mode"], gpu["sm_count"]) for gpu in listed] == [
        (SMALL, "mig", 16),
        (LARGE, "mig", 60),
    ]
    assert [gpu["memory_total_bytes"] >> 20 for gpu in listed] == [18048, 72192]
    assert all(gpu["uuid"].startswith("MIG-") for gpu in listed)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [True, False])
def test_jobs_on_two_instances_run_at_once_and_on_one_they_take_turns(cut, apart):
    uuid = json.loads(cut.tandem("gpus", "--json"))[0 if apart else 1]["uuid"]
    one, other = cut.job("one", "-i", LARGE), cut.job("other", "-i", uuid)
    start_together({one: LONG, other: LONG})

    assert overlap(cut, one, other) is apart

    jobs = {job["display_name"]: job for job in json.loads(cut.tandem("ps", "--json"))}
    assert jobs["one"]["gpu"] == LARGE
    assert jobs["other"]["gpu"] == (SMALL if apart else LARGE)
    assert {job["mode"] for job in jobs.values()} == {"mig"}


def test_a_job_gets_what_its_instance_has_or_is_told_that_it_has_less(cut):
    job = cut.job("fits", "-i", LARGE, "--memory-min", "40GiB", "--sm", "30", "--isolation", "mig")
    assert job.do("memory()")[1] == 72192 << 20
    assert (
        "sm 30 SMs is a share of time, not of SMs: while it has work, it is owed 50%"
        in cut.tandem("explain", "fits")
    )

    too_many = cut.refused("--require", "-i", LARGE, "--sm", "61")
    too_large = cut.refused("--require", "-i", SMALL, "--memory-min", "20GiB")
    other_mode = cut.refused("--require", "-i", SMALL, "--isolation", "time")
    not_there = cut.refused("--require", "-i", "0:9")
    no_gpu = cut.refused("--require", "-i", "3")
    no_uuid = cut.refused("--require", "-i", "MIG-deadbeef")

    assert "asks for 61 SMs, but gpu 0:2 has 60; ask for fewer" in too_many[1]
    assert "does not fit: gpu 0:1 has" in too_large[1]
    assert "asks for isolation time, but gpu 0:1 is in mode mig" in other_mode[1]
    assert "no MIG instance is called '0:9'; `tandem gpus` lists" in not_there[1]
    assert "no gpu is called '3'; `tandem gpus` lists" in no_gpu[1]
    assert "no MIG instance is called 'MIG-deadbeef'; `tandem gpus` lists" in no_uuid[1]


def test_a_mode_that_is_configured_means_nothing_to_instances_and_the_log_says_so(fresh_place):
    fresh_place.env |= {"TANDEM_SOFTGPU_PROFILE": "h200", "TANDEM_SOFTGPU_MIG": "7g.141gb"}
    config = fresh_place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps"\n')
    fresh_place.start_daemon("--config", str(config))

    (gpu,) = json.loads(fresh_place.tandem("gpus", "--json"))

    assert (gpu["name"], gpu["mode"]) == ("0:1", "mig")
    assert (
        "mig is on, and its instances ignore the configured mode"
        in (fresh_place.folder / "log").read_text()
    )
    assert "it is an instance of MIG" in fresh_place.refused("--require", "--isolation", "mps")[1]


def test_which_instance_is_meant_only_a_daemon_knows(cut):
    cut.stop_daemon()

    assert "no daemon says which device '0:1' is" in cut.refused("-i", SMALL)[1]


@pytest.fixture
def whole(fresh_place):
    """A place whose GPU can be cut but is not."""
    fresh_place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"
    fresh_place.start_daemon()
    return fresh_place


def cutting(place, *words):
    """Return the exit code and the output of `tandem partition apply`."""
    words = [sys.executable, "-m", "tandem.cli", "partition", "apply", "--mig", *words]
    done = subprocess.run(
        words, env=place.env, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout + done.stderr


def names(place):
    return [gpu["name"] for gpu in json.loads(place.tandem("gpus", "--json"))]


def test_an_admin_cuts_a_gpu_and_jobs_find_the_instances(whole):
    planned = cutting(whole, "0=4g.71gb,3g.71gb", "--dry-run")
    unasked = cutting(whole, "0=4g.71gb,3g.71gb")
    assert names(whole) == ["0"]

    foretold = json.loads(cutting(whole, "0=4g.71gb,3g.71gb", "--dry-run", "--json")[1])

    done = cutting(whole, "0=4g.71gb,3g.71gb", "--yes")

    assert foretold["created"] == [
        {"name": None, "profile": "4g.71gb"},
        {"name": None, "profile": "3g.71gb"},
    ]
    assert (foretold["done"], foretold["destroyed"]) == (False, [])
    assert planned[1].splitlines() == [
        "MIG would be turned on",
        "4g.71gb would be created",
        "3g.71gb would be created",
    ]
    assert "nobody can be asked here" in unasked[1]
    assert "0:1 (4g.71gb) created" in done[1]
    assert names(whole) == ["0:1", "0:2"]
    job = whole.job("here", "-i", "0:2", "--isolation", "mig", "--sm", "60")
    assert job.do("memory()")[1] == 72192 << 20


def test_a_gpu_that_our_idle_mps_keeps_is_cut(fresh_place):
    place = fresh_place
    config = place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps"\n')
    place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"
    place.start_daemon("--config", str(config))
    job = place.job("before")
    assert cutting(place, "0=3g.71gb", "--yes")[0] == 4  # it has a client
    job.end()
    until(lambda: "in the way" not in cutting(place, "0=3g.71gb", "--dry-run")[1], what="it ended")

    code, said = cutting(place, "0=3g.71gb", "--yes")

    assert (code, names(place)) == (0, ["0:1"]), said


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_what_does_not_fit_is_refused_while_mig_is_off_too(whole, how):
    code, why = cutting(whole, "0=7g.141gb,1g.18gb", how)

    assert code == 5
    assert "does not fit: 7g.141gb does, and leaves no place for 1g.18gb" in why
    assert names(whole) == ["0"]


def test_a_gpu_that_is_used_is_not_cut_and_its_users_are_named(cut):
    job = cut.job("busy", "-i", LARGE)

    planned = cutting(cut, "0=7g.141gb", "--dry-run")
    refused = cutting(cut, "0=7g.141gb", "--yes")
    assert f"in the way: pid {job.pid} (job j-" in planned[1]
    assert refused[0] == 4
    assert f"is used by pid {job.pid} (job j-" in refused[1]
    assert names(cut) == [SMALL, LARGE]

    job.kill()
    until(lambda: cutting(cut, "0=off", "--yes")[0] == 0, what="the gpu is free")
    assert names(cut) == ["0"]


def test_a_layout_that_does_not_fit_leaves_the_gpu_as_it_was(cut):
    before = cut.tandem("gpus")

    planned, done = (
        cutting(cut, "0=3g.71gb,3g.71gb,1g.18gb", how) for how in ("--dry-run", "--yes")
    )

    why = "does not fit: 3g.71gb,3g.71gb does, and leaves no place for 1g.18gb"
    assert (planned[0], done[0]) == (5, 5)
    assert why in planned[1]
    assert why in done[1]
    assert cut.tandem("gpus") == before


@pytest.mark.parametrize(
    ("layout", "code", "why"),
    [
        ("3g.71gb", 2, "'3g.71gb' is not a layout; write one such as 0=3g.71gb"),
        ("0=3g.40gb", 2, "'3g.40gb' is not a MIG profile of gpu 0; there are 1g.18gb"),
        ("0=4g.71gb,4g.71gb", 2, "has too many 4g.71gb: at most 1 fit"),
        ("0=1g.18gb,", 2, "names an empty profile"),
        ("7=off", 3, "there is no gpu '7'"),
    ],
)
def test_a_wrong_layout_is_refused_with_the_reason(cut, layout, code, why):
    ended = cutting(cut, layout, "--dry-run")

    assert ended[0] == code
    assert why in ended[1]


def test_a_gpu_without_mig_is_not_cut(fresh_place):
    fresh_place.start_daemon()

    assert "gpu 0 has no MIG" in cutting(fresh_place, "0=1g.18gb", "--yes")[1]
    fresh_place.job("here")  # ending it would achieve nothing
    assert "gpu 0 has no MIG" in cutting(fresh_place, "0=1g.18gb", "--yes")[1]

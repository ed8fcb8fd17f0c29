"""The Slurm plugin, compiled against our header and loaded by a fake launch.

Its job is a real one, of a daemon on the software GPU.
"""

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_job import JOB

from tandem import _paths, softgpu
from tandem._attach import CLASSES, NAME_BYTES
from tandem._client import Client
from tandem.errors import UsageError
from tandem.units import parse_memory, parse_slo, parse_sm

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "slurm"
SOURCE = ROOT / "packaging/slurm/spank_tandem.c"
INCLUDE = f"-I{HERE / 'include'}"
STRICT = "-Wall -Wextra -Wshadow -Werror"
DEADLINE_S = 30
MATH = "libm.so.6"  # some other library that a job may preload
SHIM = str(_paths.SHIM)


def choose_class(text):
    if text not in CLASSES:
        raise UsageError(text)


# The client's parser for the value of each option.
PARSERS = {
    "--tandem-priority": choose_class,
    "--tandem-memory": parse_memory,
    "--tandem-slo": parse_slo,
    "--tandem-sm": parse_sm,
}
TAKEN = [
    ("--tandem-priority", "latency", "TANDEM_PRIORITY"),
    ("--tandem-priority", "batch", "TANDEM_PRIORITY"),
    ("--tandem-memory", "20GiB", "TANDEM_MEMORY"),
    ("--tandem-memory", "1.5t", "TANDEM_MEMORY"),
    ("--tandem-memory", "2097152", "TANDEM_MEMORY"),
    ("--tandem-memory", "40%", "TANDEM_MEMORY"),
    ("--tandem-slo", "p99=50ms", "TANDEM_SLO"),
    ("--tandem-slo", "p99=0.5s", "TANDEM_SLO"),
    ("--tandem-sm", "30%", "TANDEM_SM"),
    ("--tandem-sm", "9999", "TANDEM_SM"),
]
REFUSED = [
    ("--tandem-priority", "urgent", "latency, normal or batch"),
    ("--tandem-memory", "", "a size such as 20GiB"),
    ("--tandem-memory", "0", "a size such as 20GiB"),
    ("--tandem-memory", "20", "a size such as 20GiB"),  # without a unit it means bytes
    ("--tandem-memory", "20GiBs", "a size such as 20GiB"),
    ("--tandem-memory", "-1g", "a size such as 20GiB"),
    ("--tandem-memory", "inf", "a size such as 20GiB"),
    ("--tandem-memory", "9000000T", "a size such as 20GiB"),
    ("--tandem-memory", "101%", "a share from 1% to 100%"),
    ("--tandem-slo", "p99=", "p99=50ms"),
    ("--tandem-slo", "p95=50ms", "p99=50ms"),
    ("--tandem-slo", "p99=50", "p99=50ms"),
    ("--tandem-slo", "p99=0ms", "p99=50ms"),
    ("--tandem-sm", "0", "a number of SMs from 1 to 9999"),
    ("--tandem-sm", "1.5", "a number of SMs from 1 to 9999"),
    ("--tandem-sm", "10000", "a number of SMs from 1 to 9999"),
    ("--tandem-sm", "0%", "a share from 1% to 100%"),
]


def make_spank(output, *flags):
    words = ["make", "-s", "spank", f"DIST={output}", *flags]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)


def make_plugin(output):
    done = make_spank(output, f"CPPFLAGS={INCLUDE}", f"CFLAGS={STRICT}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def plugin(made_once):
    return made_once("spank", make_plugin) / "spank_tandem.so"


@pytest.fixture(scope="module")
def host(made_once):
    """The fake launch."""

    def compile_host(output):
        words = [os.environ.get("CC", "cc"), *STRICT.split(), INCLUDE, "-rdynamic"]
        subprocess.run([*words, "-o", output, HERE / "spank_host.c"], check=True)

    return made_once("spank_host", compile_host)


@pytest.fixture
def words(plugin, host):
    """The words that start a command as `srun OPTIONS COMMAND` would."""

    def make(options, command, *site, library=SHIM, side="srun"):
        site = [*site, *([f"library={library}"] if library else [])]
        return [host, side, plugin, *site, "--", *options, "--", *command]

    return make


@pytest.fixture
def srun(words, clean_env):
    """Run `env` that way; the result has its variables as `seen`."""

    def run(*options, site=(), environ=None, **more):
        done = subprocess.run(
            words(options, ["env", "-0"], *site, **more),
            env=clean_env | {"SLURM_JOB_NAME": "train"} | (environ or {}),
            capture_output=True,
            timeout=DEADLINE_S,
        )
        lines = os.fsdecode(done.stdout).split("\0")[:-1]
        seen = dict(line.split("=", 1) for line in lines)
        done.stderr = os.fsdecode(done.stderr)
        done.seen = {k: v for k, v in seen.items() if k.startswith(("TANDEM_", "LD_PRELOAD"))}
        return done

    return run


def test_without_the_header_of_slurm_it_is_said_what_is_missing(tmp_path):
    done = make_spank(tmp_path / "dist", "CPPFLAGS=-nostdinc")

    assert done.returncode == 2
    assert done.stderr.startswith("error: no slurm/spank.h of the Slurm that is to load it; ")
    assert not (tmp_path / "dist").exists()


def test_without_a_word_nothing_is_changed(srun):
    done = srun(environ={"TANDEM_PRIORITY": "batch"})

    assert (done.returncode, done.stderr) == (0, "")
    assert done.seen == {"TANDEM_PRIORITY": "batch"}


@pytest.mark.parametrize(("option", "value", "variable"), TAKEN)
def test_an_option_is_a_variable_of_the_task(srun, option, value, variable):
    done = srun(f"{option}={value}")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.seen == {
        "LD_PRELOAD": SHIM,
        "TANDEM_NAME": "train",
        variable: value,
    }
    PARSERS[option](value)  # as `tandem run` in the job would do


@pytest.mark.parametrize(("option", "value", "allowed"), REFUSED)
def test_a_wrong_value_ends_the_command_that_submits_it(srun, option, value, allowed):
    done = srun(f"{option}={value}")

    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {option} '{value}' is not allowed; use ")
    assert allowed in line
    with pytest.raises(UsageError):
        PARSERS[option](value)


def test_a_value_has_an_end(srun):
    done = srun(f"--tandem-memory={'0' * 62}1g")

    assert done.returncode == 1
    assert "is not allowed" in done.stderr


def test_a_value_that_only_the_node_knows_for_wrong_ends_nothing(srun):
    done = srun("--tandem-priority=urgent", "--tandem-memory=1g", side="node")

    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.endswith("use latency, normal or batch; going on without it")
    assert done.seen["TANDEM_MEMORY"] == "1g"
    assert "TANDEM_PRIORITY" not in done.seen


def test_an_option_goes_before_a_variable_and_the_last_word_before_all(srun):
    done = srun(
        "--tandem-priority=batch",
        "--tandem-priority=latency",
        environ={"TANDEM_PRIORITY": "normal"},
    )

    assert done.seen["TANDEM_PRIORITY"] == "latency"


def test_a_site_may_manage_all_jobs_and_say_their_class(srun):
    site = ("default=on", "priority=batch")

    assert srun(site=site).seen["TANDEM_PRIORITY"] == "batch"
    assert srun(site=site, environ={"TANDEM_PRIORITY": ""}).seen["TANDEM_PRIORITY"] == "batch"
    own = srun(site=site, environ={"TANDEM_PRIORITY": "latency", "TANDEM_MEMORY": "1g"}).seen
    assert (own["TANDEM_PRIORITY"], own["TANDEM_MEMORY"]) == ("latency", "1g")


def test_a_job_may_be_taken_in_without_asking_for_anything(srun):
    assert srun("--tandem=on").seen["LD_PRELOAD"] == SHIM


def test_a_job_may_be_left_out(srun):
    site = ("default=on", "priority=batch", "runtime=/run/other")

    done = srun("--tandem-memory=1g", "--tandem=off", site=site)

    assert (done.returncode, done.stderr, done.seen) == (0, "", {})


def test_the_daemon_is_named_only_where_the_site_does(srun):
    site = ("runtime=/run/other",)

    assert srun("--tandem=on", site=site).seen["TANDEM_RUNTIME_DIR"] == "/run/other"
    mine = srun("--tandem=on", site=site, environ={"TANDEM_RUNTIME_DIR": "/run/mine"})
    assert mine.seen["TANDEM_RUNTIME_DIR"] == "/run/mine"


@pytest.mark.parametrize("before", [MATH, f"{MATH}:{SHIM}", f"{SHIM} {MATH}"])
@pytest.mark.parametrize(("word", "after"), [("on", f"{SHIM}:{MATH}"), ("off", MATH)])
def test_what_a_job_preloads_stays(srun, before, word, after):
    done = srun(f"--tandem={word}", environ={"LD_PRELOAD": before})

    assert (done.returncode, done.stderr) == (0, "")
    assert done.seen["LD_PRELOAD"] == after


def test_a_job_that_was_submitted_from_another_is_left_out_as_well(srun):
    assert "LD_PRELOAD" not in srun("--tandem=off", environ={"LD_PRELOAD": SHIM}).seen


def test_more_than_it_has_room_for_stays_as_it_is(srun):
    before = ":".join([MATH] * 2000)

    done = srun("--tandem-memory=1g", environ={"LD_PRELOAD": before})

    assert done.returncode == 0
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("error:"))
    assert "LD_PRELOAD cannot be read (No space left on device)" in line
    assert done.seen == {"LD_PRELOAD": before}


@pytest.mark.parametrize("name", ["nothing/libtandem.so", "a folder/libtandem.so"])
def test_without_a_library_the_task_starts_without_tandem(srun, tmp_path, name):
    library = tmp_path / name
    if " " in name:  # LD_PRELOAD cannot hold such a name
        library.parent.mkdir()
        library.touch()

    done = srun("--tandem-memory=1g", library=library)

    assert (done.returncode, done.seen) == (0, {})
    (line,) = done.stderr.splitlines()
    assert line == f"error: tandem: there is no {library} to preload; starting without Tandem"


def test_the_library_is_that_of_the_newest_python(srun, tmp_path):
    for minor in (11, 12):
        folder = tmp_path / f"python3.{minor}"
        folder.mkdir()
        (folder / "libtandem.so").symlink_to(SHIM)

    done = srun("--tandem=on", library=tmp_path / "python3*" / "libtandem.so")

    assert done.seen["LD_PRELOAD"] == str(tmp_path / "python3.12" / "libtandem.so")


def test_where_nothing_is_said_it_is_that_of_the_debian_package():
    (pattern,) = re.findall(r'g_site\.library = "(.*)"', SOURCE.read_text())
    (home,) = re.findall(r'HOME = Path\("(.*)"\)', (ROOT / "packaging/deb/build.py").read_text())

    packaged = f"/{home}/lib/python3.11/site-packages/tandem/{_paths.SHIM.name}"

    assert fnmatch.fnmatch(packaged, pattern)


@pytest.mark.parametrize(
    "argument", ["defualt=on", "default=yes", "priority=high", "library=x.so", "runtime=", "on"]
)
def test_an_argument_that_is_wrong_is_a_line(srun, argument):
    done = srun("--tandem=on", site=(argument,), side="node")

    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: tandem: '{argument}' in plugstack.conf is not one of default=")
    assert done.seen == {"LD_PRELOAD": SHIM, "TANDEM_NAME": "train"}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"TANDEM_NAME": "mine"}, "mine"),
        ({"SLURM_JOB_NAME": "two words"}, "two words"),
        ({"SLURM_JOB_NAME": "é\n"}, "???"),
        ({"SLURM_JOB_NAME": "x" * 100}, "x" * (NAME_BYTES - 1)),
        ({"SLURM_JOB_NAME": " "}, "slurm-17"),
        ({"SLURM_JOB_NAME": "j-7f3a"}, "slurm-17"),  # `tandem ps` uses such names for jobs
        ({"SLURM_JOB_NAME": "j-7f3ag"}, "j-7f3ag"),
    ],
)
def test_a_job_has_the_name_that_slurm_has(srun, said, name):
    assert srun("--tandem=on", environ=said).seen["TANDEM_NAME"] == name


def test_a_job_of_slurm_is_a_job_of_the_daemon(words, serve, clean_env):
    environ = softgpu.environment(clean_env, profile="mini")
    place = serve(environ)["TANDEM_RUNTIME_DIR"]
    options = ["--tandem-memory=64MiB", "--tandem-slo=p99=50ms", "--tandem-sm=50%"]
    site = ("default=on", "priority=batch", f"runtime={place}")
    slurm = {"JOB_NAME": "train", "JOB_ID": "17", "STEP_ID": "0", "STEP_NUM_TASKS": "2"}
    environ |= {f"SLURM_{name}": value for name, value in slurm.items()}

    with subprocess.Popen(
        words(options, [sys.executable, "-c", JOB], *site),
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        shown_bytes = int(process.stdout.readline())
        with Client(directory=place) as client:
            (job,) = client.jobs()
        process.communicate()

    assert (job.display_name, job.priority, job.group) == ("train", "batch", "slurm:17.0")
    assert job.memory_quota_bytes == shown_bytes == 64 << 20
    assert (job.slo_p99_ns, job.sm_percent) == (50_000_000, 50)

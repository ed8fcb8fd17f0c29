"""~/.config/tandem/config.toml: a job's request where nothing else states it."""

import json
import shlex
import sys

import pytest

from tandem import _user_file
from tandem.cli import __main__ as cli
from tandem.cli.run import run


@pytest.fixture
def tandem(monkeypatch, tmp_path, capsys, shim):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", str(tmp_path))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["tandem", *words])
        code = cli.main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def file(monkeypatch, tmp_path):
    """Writes the file; returns its path."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    path = tmp_path / "xdg" / "tandem" / "config.toml"
    path.parent.mkdir(parents=True)

    def write(text):
        path.write_text(text)
        return path

    return write


def asked(tandem, *words):
    """Return the variables of a request that `tandem run` would set."""
    code, out, err = tandem("run", "--dry-run", *words, "--", "true")
    assert code == 0, err
    said = dict(word.split("=", 1) for word in shlex.split(out)[1:-1])
    others = ("LD_PRELOAD", "TANDEM_SOCKET", "TANDEM_RUNTIME_DIR")
    return {name: value for name, value in said.items() if name not in others}


def test_each_option_of_run_with_a_variable_is_a_key_but_for_the_name():
    variables = {param.name for param in run.params if param.envvar}

    assert set(_user_file.KEYS) == variables - {"name"}
    assert len(_user_file.KEYS) == len(set(_user_file.KEYS))


def test_what_it_says_is_asked_for(tandem, file):
    file(
        'version = 1\n[run]\npriority = "batch"\nmemory = "40%"\nmemory_min = "1GiB"\nsm = 40\n'
        'slo = "p99=50ms"\npreemptible = false\nswappable = true\nidle_release = "60s"\n'
        'wait_memory = "2h"\nisolation = "mps"\ngroup = "team"\nrequire = true\n'
    )

    assert asked(tandem) == {
        "TANDEM_PRIORITY": "batch",
        "TANDEM_MEMORY": "40%",
        "TANDEM_MEMORY_MIN": "1GiB",
        "TANDEM_SM": "40",
        "TANDEM_SLO": "p99=50ms",
        "TANDEM_PREEMPTIBLE": "0",
        "TANDEM_SWAPPABLE": "1",
        "TANDEM_IDLE_RELEASE": "60s",
        "TANDEM_WAIT_MEMORY": "7200s",
        "TANDEM_ISOLATION": "mps",
        "TANDEM_GROUP": "team",
        "TANDEM_REQUIRE": "1",
    }


def test_a_flag_counts_before_a_variable_and_that_before_the_file(tandem, file, monkeypatch):
    file('[run]\npriority = "batch"\nmemory = "1GiB"\ngroup = "file"\n')
    monkeypatch.setenv("TANDEM_MEMORY", "2GiB")
    monkeypatch.setenv("TANDEM_GROUP", "variable")

    said = asked(tandem, "-G", "flag")

    assert said == {"TANDEM_PRIORITY": "batch", "TANDEM_GROUP": "flag", "TANDEM_MEMORY": "2GiB"}


def test_a_flag_takes_back_what_it_says(tandem, file):
    file("[run]\nrequire = true\ncheckpoint = true\nreturn_memory = true\n")

    assert asked(tandem, "--no-require", "--no-checkpoint", "--no-return-memory") == {}


REVOCABLE = {
    "priority": "batch",
    "memory": "2GiB",
    "memory_min": "1GiB",
    "persistent": "1GiB",
    "ephemeral": "1GiB",
    "wait_memory": "30s",
    "sm": "30%",
    "isolation": "mps",
    "slo": "p99=50ms",
    "idle_release": "60s",
}


@pytest.mark.parametrize("key", REVOCABLE)
def test_none_takes_back_what_the_file_says(tandem, file, key):
    keys = ("persistent", "ephemeral") if key in ("persistent", "ephemeral") else (key,)
    file("\n".join(["[run]", *(f'{key} = "{REVOCABLE[key]}"' for key in keys)]))
    options = [f"--{key.replace('_', '-')}=none" for key in keys]

    assert asked(tandem) != {}
    assert asked(tandem, *options) == {}


def test_none_takes_back_what_a_variable_says_and_has_the_job_started_without(tandem, monkeypatch):
    monkeypatch.setenv("TANDEM_MEMORY", "2GiB")
    monkeypatch.setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g")

    code, out, _ = tandem("run", "--dry-run", "--memory", "none", "--", "true")

    assert code == 0
    assert out.startswith("env -u CUDA_DEVICE_MEMORY_LIMIT -u TANDEM_MEMORY ")
    assert "TANDEM_MEMORY=" not in out


@pytest.mark.parametrize("words", [("env",), ("kernelspec", "install")])
def test_none_takes_no_variable_back_that_the_program_is_given_all_the_same(
    tandem, monkeypatch, words
):
    monkeypatch.setenv("TANDEM_MEMORY", "2GiB")

    code, out, err = tandem(*words, "--memory", "none")

    assert (code, out) == (2, "")
    assert "none cannot take back TANDEM_MEMORY, which the program would still be" in err


def test_none_is_no_value_of_the_file_or_a_variable(tandem, file, monkeypatch):
    file('[run]\nmemory = "none"\n')
    assert tandem("run", "--dry-run", "--", "true")[0] == 125

    monkeypatch.setenv("TANDEM_MEMORY", "none")
    assert tandem("run", "--dry-run", "--", "true")[0] == 125


def test_what_a_variable_says_is_taken_back_for_the_library_too(tandem, file, monkeypatch):
    monkeypatch.setenv("TANDEM_CHECKPOINT", "1")

    assert asked(tandem, "--no-checkpoint") == {"TANDEM_CHECKPOINT": "0"}


@pytest.mark.parametrize(
    ("text", "words", "left"),
    [
        ('swappable = true\nidle_release = "1m"', ["--checkpoint"], {"TANDEM_CHECKPOINT": "1"}),
        ("checkpoint = true", ["--swappable"], {"TANDEM_SWAPPABLE": "1"}),
        ('idle_release = "1m"', ["--no-swappable"], {"TANDEM_SWAPPABLE": "0"}),
    ],
)
def test_what_was_said_of_moving_memory_counts_before_the_file(tandem, file, text, words, left):
    file(f"[run]\n{text}\n")

    assert asked(tandem, *words) == left


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[run]\nmemroy = 1\n",
            "run.memroy: unknown key; did you mean memory? known are priority,",
        ),
        ('[run]\nname = "x"\n', "run.name: unknown key; known are "),
        (
            "[scheduler]\n",
            "scheduler: unknown key; the only table is [run], with what your jobs ask for",
        ),
        ("run = 1\n", "run: it is not a table; write [run] on a line of its own"),
        ("version = 2\n", "version: 2 is not known; this Tandem reads version 1"),
        (
            "[run]\nmemory = [1]\n",
            "run.memory: a list is not text in quotes, a number, true or false",
        ),
        ("[run\n", "Expected ']' at the end of a table declaration"),
        ('[run]\nmemory = "12XB"\n', "run.memory '12XB' has the unknown unit 'XB'; use bytes or"),
        ('[run]\npriority = "urgent"\n', "run.priority': 'urgent' is not one of 'latency'"),
        ("[run]\nrequire = 7\n", "run.require': '7' is not a valid boolean"),
        ("[run]\nwait_memory = true\n", "run.wait_memory 'true' is not a time such as 30s or 2h"),
    ],
)
def test_what_is_wrong_with_it_is_said_with_file_and_key(tandem, file, text, complaint):
    path = file(text)

    code, out, err = tandem("run", "--", "true")

    assert (code, out) == (125, "")
    assert f"{path}: {complaint}" in err


def test_bytes_that_are_no_text_and_what_cannot_be_read_are_said(tandem, file):
    path = file("")
    path.write_bytes(b"\xff")
    assert f"error: {path}: 'utf-8' codec" in tandem("run", "--", "true")[2]

    path.unlink()
    path.mkdir()
    assert tandem("env") == (2, "", f"error: {path}: Is a directory\n")


def test_help_is_there_whatever_is_wrong_with_it(tandem, file):
    file("[rnu]\n")

    assert tandem("run", "--help")[0] == 0
    assert "No such option" in tandem("run", "--bogus")[2]  # errors in the command come first


def test_an_error_that_names_an_option_says_that_the_file_gave_it(tandem, file):
    path = file('[run]\nmemory_min = "2GiB"\nrequire = true\n')

    code, _, err = tandem("run", "-m", "1GiB", "--", "true")
    assert code == 125
    assert err.endswith(f"lower one, or raise the other ({path}: run.memory_min)\n")

    assert f"or drop --require ({path}: run.require)\n" in tandem("run", "--", "true")[2]


def test_an_error_that_names_an_option_says_that_a_variable_gave_it(tandem, monkeypatch):
    monkeypatch.setenv("TANDEM_NAME", "  ")

    code, _, err = tandem("run", "--", "true")

    assert code == 125
    assert err == "error: --name is blank; give it a letter, or omit it (TANDEM_NAME)\n"


def test_what_else_asks_for_jobs_has_it_too(tandem, file, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    path = file('[run]\npriority = "batch"\nrequire = true\n')

    assert "export TANDEM_PRIORITY=batch\n" in tandem("env")[1]
    assert "TANDEM_PRIORITY=batch" in tandem("cdi", "generate")[1].split('"normal"')[0]
    assert tandem("kernelspec", "install", "--prefix", str(tmp_path))[0] == 0
    [kernel] = tmp_path.rglob("kernel.json")
    assert json.loads(kernel.read_text())["env"]["TANDEM_PRIORITY"] == "batch"

    file("[rnu]\n")
    for words in (["env"], ["cdi", "generate"], ["kernelspec", "install"]):
        assert tandem(*words)[2].startswith(f"error: {path}: rnu: unknown key")


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"XDG_CONFIG_HOME": "/x"}, "/x/tandem/config.toml"),
        ({"XDG_CONFIG_HOME": "relative"}, "/home/u/.config/tandem/config.toml"),
        ({}, "/home/u/.config/tandem/config.toml"),
    ],
)
def test_where_it_is(environ, place, monkeypatch):
    monkeypatch.setenv("HOME", "/home/u")

    assert _user_file.place(environ) == place

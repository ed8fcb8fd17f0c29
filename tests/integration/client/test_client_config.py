"""`tandem config`, which asks the installed tandemd."""

import json

import pytest


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "team.toml"
    path.write_text('[scheduler]\npolicy = "fair"\n')
    return path


def test_show_tells_values_and_where_they_come_from(tandem, file):
    lines = tandem("config", "show", "--origin", file).stdout.splitlines()
    said = [line for line in lines if not line.startswith("built-in ")]
    items = json.loads(tandem("config", "show", "--json", file).stdout)

    assert said == [f'{file}  scheduler.policy = "fair"']
    assert {"key": "scheduler.policy", "value": "fair", "origin": str(file)} in items
    assert len(items) == len(lines)


def test_check_says_whether_it_is_valid(tandem, file):
    valid = tandem("config", "check", file)
    file.write_text("[scheduler]\npolcy = 1\n")
    wrong = tandem("config", "check", file)

    assert (valid.returncode, valid.stdout) == (0, f"the configuration is valid: {file}\n")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"error: {file}: scheduler.polcy: unknown key; did you mean policy?\n"
    assert tandem("config", "show", file).returncode == 2


@pytest.fixture
def own(environ, tmp_path):
    """Write the user's own configuration file; return its path."""
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    path = tmp_path / "xdg" / "tandem" / "config.toml"
    path.parent.mkdir(parents=True)

    def write(text):
        path.write_text(text)
        return path

    return write


def test_the_users_own_file_is_shown_and_checked_with_it(tandem, own, file):
    path = own('[run]\nmemory = "20GiB"\nsm = 40\n')

    shown = tandem("config", "show", "--origin").stdout.splitlines()
    items = json.loads(tandem("config", "show", "--json").stdout)

    assert [line.split()[0] for line in shown if "run." in line] == [str(path)] * 2
    assert {"key": "run.sm", "value": 40, "origin": str(path)} in items
    assert tandem("config", "check").stdout.endswith(f"\nyour own file is valid: {path}\n")
    assert str(path) not in tandem("config", "show", "--origin", file).stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[run]\npriority = "urgent"\n', "run.priority: 'urgent' is not one of 'latency',"),
        ('[run]\nmemory = "12XB"\n', "run.memory '12XB' has the unknown unit"),
        ("[run]\ncheckpoint = true\nswappable = true\n", "--checkpoint and --swappable are two"),
        ('[run]\npersistent = "2GiB"\n', "--persistent has no meaning without --ephemeral"),
    ],
)
def test_a_wrong_one_is_found_whatever_variables_say(tandem, own, text, complaint):
    path = own(text)

    done = tandem("config", "check", TANDEM_PRIORITY="batch", TANDEM_MEMORY="1GiB")

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}: {complaint}")

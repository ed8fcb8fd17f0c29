"""packaging/container and its DaemonSet agree with the rest of the project."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tandem import _paths
from tandem.cli.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "packaging/container/Containerfile").read_text().replace("\\\n", "")
PAGE = (ROOT / "docs/integrations.md").read_text()


@pytest.fixture
def unit():
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read(ROOT / "packaging/tandemd.service")
    return found["Service"]


@pytest.fixture
def pod():
    """The daemon's pod."""
    daemon_set = yaml.safe_load((ROOT / "packaging/kubernetes/daemon.yaml").read_text())
    template = daemon_set["spec"]["template"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    return template["spec"]


def said(instruction):
    """Return the arguments of the instruction's last use in the Containerfile."""
    return re.findall(rf"^{instruction} (.*)$", CONTAINERFILE, re.M)[-1]


def test_its_folders_are_those_of_the_service(unit):
    variables = dict(re.findall(r"(\w+)=(\S+)", said("ENV")))

    assert variables[_paths.VARIABLE] == f"/run/{unit['RuntimeDirectory']}" == str(_paths.SYSTEM)
    assert variables["STATE_DIRECTORY"] == f"/var/lib/{unit['StateDirectory']}"


def test_it_is_no_root_and_one_number_everywhere(pod):
    user, group = said("USER").split(":")

    assert int(user) == int(group) > 60577  # the range of distributions and systemd ends there
    assert f"--gid {group} " in CONTAINERFILE
    assert f"--uid {user} " in CONTAINERFILE
    assert pod["initContainers"][0]["command"][1] == f"{user}:{group}"
    assert f"install -d -o {user} -g {group} /run/tandem" in PAGE
    assert f"d /run/tandem 0755 {user} {group} -" in PAGE


def test_it_is_asked_by_a_command_that_there_is(pod):
    health = yaml.safe_load(said("HEALTHCHECK").partition("CMD ")[2])

    assert health[0] == "tandem"
    assert health[1] in COMMANDS
    assert pod["containers"][0]["readinessProbe"]["exec"]["command"] == health


def test_what_is_mounted_is_there_and_nothing_else_is_mounted(pod):
    named = {volume["name"] for volume in pod["volumes"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}

    for container in (*pod["initContainers"], *pod["containers"]):
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts.items() <= paths.items()
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == named


def test_it_sees_the_pids_of_jobs_and_has_time_to_end(pod, unit):
    (options,) = re.findall(r"podman run -d --name tandemd((?:.*\\\n)*.*)", PAGE)
    words = shlex.split(options.replace("\\\n", " "))

    assert pod["hostPID"] is True
    assert "--pid=host" in words
    seconds = int(unit["TimeoutStopSec"].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] == seconds
    assert words[words.index("--stop-timeout") + 1] == str(seconds)

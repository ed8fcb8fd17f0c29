"""packaging/kubernetes agrees with the code, and uses only options that the code has."""

import configparser
from pathlib import Path

import pytest
import yaml

from tandem import _paths
from tandem._attach import CLASSES, Request
from tandem._environment import request_environment
from tandem.cli.kubernetes import kubernetes
from tandem.kubernetes.slices import RESOURCE

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def pod_of(name):
    return yaml.safe_load((PACKAGING / "kubernetes" / name).read_text())


@pytest.fixture
def pod():
    """The plugin's pod."""
    daemon_set = pod_of("plugin.yaml")
    template = daemon_set["spec"]["template"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    return template["spec"]


@pytest.fixture
def container(pod):
    (container,) = pod["containers"]
    return container


@pytest.fixture
def mounts(pod, container):
    """What the plugin sees of its node: path -> whether it may write there."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    named = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert named == paths
    return {m["mountPath"]: not m.get("readOnly", False) for m in container["volumeMounts"]}


def test_the_command_is_one_and_its_folders_are_mounted(container, mounts):
    program, group, *words = [*container["command"], *container["args"]]
    assert (program, group, words[0]) == ("tandem", kubernetes.name, "plugin")

    said = kubernetes.commands["plugin"].make_context("plugin", words[1:]).params

    assert mounts[str(said["kubelet"])]
    assert mounts[str(said["files"])]


def test_the_daemon_is_looked_for_where_the_unit_has_it(container, mounts):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(PACKAGING / "tandemd.service")

    (variable,) = container["env"]

    assert variable["name"] == _paths.VARIABLE
    assert variable["value"] == f"/run/{unit['Service']['RuntimeDirectory']}" == str(_paths.SYSTEM)
    assert mounts[variable["value"]] is False


def test_the_example_asks_for_what_there_is():
    (container,) = pod_of("pod.yaml")["spec"]["containers"]

    (slices,) = container["resources"]["limits"].items()
    asked = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert slices == (RESOURCE, 2)
    assert asked["TANDEM_PRIORITY"] in CLASSES
    assert asked.keys() <= request_environment(Request(priority="batch", name="trainer")).keys()


@pytest.mark.parametrize(
    ("name", "times"), [("plugin.yaml", 1), ("pod.yaml", 1), ("daemon.yaml", 2)]
)
def test_the_image_is_the_readers(name, times):
    assert (PACKAGING / "kubernetes" / name).read_text().count("image: IMAGE\n") == times

"""Our driver answers what NVIDIA's own answered without a card, as recorded by tests/nvidia."""

import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
RECORDED = sorted((TESTS / "data" / "nvidia").glob("driver-*.json"))

# Any answer before cuInit except these is about an argument, so it is the same after cuInit.
NOT_INITIALIZED, NO_DEVICE, NOT_SUPPORTED = 3, 100, 801

ASK = f"""
import json
sys.path.insert(0, {str(TESTS / "nvidia")!r})
from asking import Library, nvml_functions, with_zeros
library = Library()
gpu = Gpu()
"""


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request):
    return json.loads(request.param.read_text())


def until(version, changes):
    return [row for row in changes if row[0] <= version]


def test_names_are_found_from_the_same_versions_on(gpu, recorded):
    ours = json.loads(gpu.run(ASK + "print(json.dumps(library.lookups()))"))

    of_the_same_version = {
        base: {kind: until(recorded["cuda"], changes) for kind, changes in kinds.items()}
        for base, kinds in ours.items()
        if base in recorded["lookups"]
    }
    assert of_the_same_version == recorded["lookups"]


def test_an_older_driver_has_the_names_that_nvidias_of_its_version_has(gpu, recorded):
    gpu.version = f"{recorded['cuda'] // 1000}.{recorded['cuda'] % 1000 // 10}"

    program = "print(json.dumps([library.version(), library.lookups(), [*library.exported]]))"
    of_cuda, lookups, exported = json.loads(gpu.run(ASK + program))

    assert of_cuda == recorded["cuda"]
    assert lookups == recorded["lookups"]
    assert sorted(exported) == sorted(recorded["refusals"])


def test_arguments_of_zero_are_refused_alike(gpu, recorded):
    told = {
        name: code
        for name, code in recorded["refusals"].items()
        if code >= 0 and code not in (NOT_INITIALIZED, NO_DEVICE)
    }

    said = json.loads(
        gpu.run(
            ASK + f"codes = {{n: with_zeros(getattr(library.calls, n)) for n in {[*told]}}}\n"
            "print(json.dumps(codes))"
        )
    )

    implemented = {name: code for name, code in said.items() if code != NOT_SUPPORTED}
    assert len(implemented) > 100
    assert implemented == {name: told[name] for name in implemented}


def test_errors_have_the_same_names(gpu, recorded):
    ours = json.loads(gpu.run(ASK + "print(json.dumps(library.errors()))"))

    assert {code: name for code, name in ours.items() if code in recorded["errors"]} == recorded[
        "errors"
    ]


def test_nvml_refuses_alike_before_its_init(gpu, recorded):
    program = "print(json.dumps({n: with_zeros(f) for n, f in nvml_functions().items()}))"
    ours = json.loads(gpu.run(ASK + program))

    both = ours.keys() & recorded["nvml"].keys()
    assert len(both) > 300
    assert {name: ours[name] for name in both} == {name: recorded["nvml"][name] for name in both}

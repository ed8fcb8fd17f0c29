"""The random programs find every fault of shim/faults.def."""

import random
import re

import pytest
from proof_compare import differences
from proof_generator import build, random_codes
from proof_stage import ROOT, Stage

import ninja_build  # found through proof_stage

# The first test compiles a shim.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

IN_SETS = {"kForgetJoin"}  # found only if sets of SMs change
FAULTS = re.findall(r"^FAULT\((\w+), ", (ROOT / "shim/faults.def").read_text(), re.M)
PROGRAMS = 100  # each fault is found within so many


class Faulty:
    """The build with the faults, and the programs with their outcomes in a bare run."""

    def __init__(self, stage):
        self._stage = stage
        self._bare = {}

    def close(self):
        self._stage.close()

    def find(self, fault):
        """Return how many programs it took, or None, and what revealed the fault."""
        self._stage.extra = {"TANDEM_FAULT": fault}
        for number in range(PROGRAMS):
            if number not in self._bare:
                codes, tidily = random_codes(random.Random(f"faults-{number}"))
                program = build(codes, tidily=tidily)
                self._bare[number] = program, self._stage.bare(program)
            program, bare = self._bare[number]
            if found := differences(program, bare, self._stage.managed(program)):
                return number + 1, found
        return None, []


@pytest.fixture(scope="module")
def faulty_in(made):
    """Faulty builds by whether sets of SMs change."""
    shim = ninja_build.build(["shim-faults"])["shim-faults"]
    found = {
        in_sets: Faulty(Stage(shim=shim, in_sets=in_sets, made=made)) for in_sets in (False, True)
    }
    yield found
    for one in found.values():
        one.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(faulty_in, fault):
    number, found = faulty_in[fault in IN_SETS].find(fault)

    assert number is not None
    print(f"{fault}: program {number}: {found[0]}")


@pytest.mark.parametrize("in_sets", [False, True])
def test_without_a_fault_that_build_differs_in_nothing(faulty_in, in_sets):
    assert faulty_in[in_sets].find("none") == (None, [])


def test_there_are_enough_faults():
    assert len(FAULTS) >= 10

"""The demo's programs on the virtual clock: compiled and calibrated once, then run on demand."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tandem.demo.place import find_place
from tandem.demo.scenario import Scenario, Work, calibrate, demo_program
from tandem.demo.settings import ROLES, SERVER_LOAD

SECONDS = 9.0


class Lab:
    """Runs scenarios, each in its own folder."""

    def __init__(self, folder):
        self.folder = folder
        self.place = find_place(clock="virtual", folder=folder)
        measured = calibrate(self.place, folder / "calibrate")
        self.request_ns = measured["request_ns"]
        self.work = Work(
            blocks=measured["blocks"],
            request_ns=self.request_ns,
            gap_ns=int(self.request_ns / SERVER_LOAD),
        )

    def scenario(
        self, name, *, folder, roles=ROLES, seconds=SECONDS, managed=True, config="", pause_ns=0
    ):
        return Scenario(
            name=name,
            place=self.place,
            program=demo_program(
                self.place, replace(self.work, pause_ns=pause_ns), seconds=seconds
            ),
            roles=roles,
            seconds=seconds,
            folder=folder / name,
            managed=managed,
            config=config,
        )

    def run(self, name, **options):
        with self.scenario(name, **options) as scenario:
            return scenario.run()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def tandem():
    """Run a `tandem` command in a scenario's environment and return its JSON output."""

    def run(scenario, *words):
        child = subprocess.run(
            [sys.executable, "-m", "tandem.cli", *words, "--json"],
            env={**os.environ, **scenario.env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout)

    return run

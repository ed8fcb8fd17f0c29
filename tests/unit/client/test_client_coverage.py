"""`tandem doctor --coverage`: which driver functions the preload library sees."""

import json
import sys
from pathlib import Path

import pytest

from tandem import _doctor, _native
from tandem._coverage import coverage
from tandem.cli import __main__ as cli

GAPS = {
    "built_with": "13.0",
    "headers": {
        "12.4": {
            "functions": 4,
            "classes": {
                "launch": {"handled": 2, "passed": 0, "unhandled": 0},
                "copy": {"handled": 0, "passed": 1, "unhandled": 0},
            },
            "unclassified": ["cuOld"],
            "unhandled": [],
            "not_built": [],
        },
        "13.5": {
            "functions": 6,
            "classes": {
                "launch": {"handled": 2, "passed": 0, "unhandled": 1},
                "copy": {"handled": 0, "passed": 1, "unhandled": 0},
            },
            "unclassified": ["cuNew", "cuOld"],
            "unhandled": ["cuLaunchNew"],
            "not_built": ["cuLaunchKernelX"],
        },
    },
}


@pytest.fixture
def doctor(monkeypatch, capsys):
    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["tandem", "doctor", "--coverage", *flags])
        code = cli.main()
        return code, capsys.readouterr().out

    return run


def test_the_counts_of_every_header_add_up():
    covered = coverage()

    assert next(iter(covered.headers)) == "12.4"
    assert covered.built_with in covered.headers
    for header in covered.headers.values():
        classified = sum(count.functions for count in header.classes.values())
        assert classified + len(header.unclassified) == header.functions
        assert sum(c.unhandled for c in header.classes.values()) == len(header.unhandled)
        assert header.classes["launch"].handled >= 6


def test_no_function_of_any_header_is_unclassified_or_unhandled(doctor):
    code, out = doctor("--json")

    for row in json.loads(out)["headers"].values():
        assert (row["unclassified"], row["unhandled"]) == ([], [])
    assert code == 0


def test_gaps_are_named_and_fail(doctor, monkeypatch):
    monkeypatch.setattr(_native, "CALL_COVERAGE", json.dumps(GAPS))

    code, out = doctor()

    assert code == 1
    assert [line.split() for line in out.splitlines()[:4]] == [
        ["class", "12.4", "13.5"],
        ["launch", "2/2", "2/3"],
        ["copy", "0/1", "0/1"],
        ["all", "2/3", "2/4"],
    ]
    assert out.splitlines()[4:] == [
        "handled/declared functions; the library was built with cuda.h 13.0",
        "unclassified, since 12.4: cuOld",
        "unclassified, since 13.5: cuNew",
        "unhandled, since 13.5: cuLaunchNew",
        "newer than the build, since 13.5: cuLaunchKernelX",
    ]


def test_a_complete_table_passes(doctor, monkeypatch):
    header = GAPS["headers"]["12.4"] | {"functions": 3, "unclassified": []}
    complete = {"built_with": "12.4", "headers": {"12.4": header}}
    monkeypatch.setattr(_native, "CALL_COVERAGE", json.dumps(complete))

    code, out = doctor()

    assert code == 0
    assert out.splitlines()[-1] == "unclassified: none; unhandled: none"


def test_the_json_has_stable_names(doctor, monkeypatch):
    monkeypatch.setattr(_native, "CALL_COVERAGE", json.dumps(GAPS))

    code, out = doctor("--json")

    assert code == 1
    assert json.loads(out) == GAPS


def test_the_doctor_warns_of_a_driver_newer_than_the_header_of_the_build(monkeypatch):
    monkeypatch.setattr(_native, "CALL_COVERAGE", json.dumps(GAPS))

    known, newer = (_doctor._header_of_shim(Path("lib.so"), v) for v in (13000, 13010))

    assert (known.level, known.text) == ("ok", "lib.so, built with cuda.h 13.0")
    assert (newer.level, newer.text) == (
        "warn",
        "lib.so, built with cuda.h 13.0; the driver is newer",
    )

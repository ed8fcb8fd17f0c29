"""What was asked of a program becomes a row."""

import pytest
from bench.gpu.frameworks import COLUMNS, most, row_of, totals

from tandem.demo.process import WorkerError


def kernels(launches, sized, addresses, resolved):
    return {
        "launches": launches,
        "sized_share": sized,
        "words": addresses,
        "addresses": addresses,
        "resolved_share": resolved,
    }


STREAMS = {"processes": 1, "contexts": 2, "in_legacy": 5, "in_per_thread": 0, "in_own": 0}
LOOKUPS = {"linked": 0, "dlsym": 1, "looked_up": 440, "export_tables": {"6bd5fb6c": 2, "a0": 1}}


def test_families_are_weighed_by_what_they_launch():
    found = totals({"torch": kernels(30, 1.0, 100, 1.0), "cudnn": kernels(10, 0.5, 300, 0.2)})

    assert found == {"launches": 40, "sized_share": 0.875, "resolved_share": 0.4}


def test_of_no_launches_no_share_is_known():
    assert totals({}) == {"launches": 0, "sized_share": "not run", "resolved_share": "not run"}


def test_a_row_has_every_column_whatever_failed():
    recording = {"kernels": {"torch": kernels(30, 1.0, 100, 1.0)}, "streams": STREAMS}
    failed = {"error": "it was not done after 75 s"}

    whole, half, none = (
        row_of(recording, LOOKUPS),
        row_of(failed, LOOKUPS),
        row_of(failed, failed),
    )

    assert set(whole) == set(half) == set(none) == set(COLUMNS)
    assert (whole["recorded"], whole["launches"], whole["export_tables"]) == ("ok", 30, 2)
    assert (half["recorded"], half["launches"], half["dlsym"]) == (failed["error"], "not run", 1)
    assert none["looked_up"] == "not run"


def test_the_process_that_looked_up_most_speaks_for_a_program():
    said = [{"look_ups": 3, "dlsym": 1}, {"look_ups": 440, "dlsym": 1}, {"look_ups": 0, "dlsym": 2}]

    assert most(said) == {"look_ups": 440, "dlsym": 1, "processes": 3}
    with pytest.raises(WorkerError):
        most([])

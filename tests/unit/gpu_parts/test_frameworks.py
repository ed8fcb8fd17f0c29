"""A program's answers become a row."""

import pytest
from bench.gpu.figures.asked import unlisted
from bench.gpu.harness.running import shares
from bench.gpu.parts.frameworks import (
    COLUMNS,
    RUNNING_COLUMNS,
    most,
    row_of,
    running_row,
    totals,
)

from tandem._native import OperationKind
from tandem.dag.model import UNRESOLVED, Operation
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
    no_addresses = {"launches": 1, "sized_share": 0.0, "addresses": 0}

    assert totals({"xla": no_addresses})["resolved_share"] == "not run"
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


def test_what_a_running_job_tells_is_counted_by_launches():
    def launch(name, *, flags=0, accesses=()):
        return Operation(
            OperationKind.LAUNCH, name, 0, 0, 1, stream=0, flags=flags, accesses=accesses
        )

    known = ((0x7F00, 64, True),)
    operations = (
        launch("_ZN2at6native6kernelE", accesses=known),
        launch("nvjet_x", flags=UNRESOLVED, accesses=known),
        launch("nvjet_x", flags=UNRESOLVED),
        Operation(OperationKind.COPY, "copy htod", 0, 0, 1, stream=0, accesses=known),
        launch("affine"),
    )

    found = shares(operations, 2)

    assert (found["launches"], found["sampled_share"]) == (4, 0.5)
    assert (found["with_buffers_share"], found["all_known_share"]) == (0.5, 0.5)
    assert found["families"]["cublas"] == {"launches": 2, "with_buffers": 1, "all_known": 0}
    assert shares((), 0)["all_known_share"] == 0
    assert set(running_row(found)) == set(running_row({"error": "no"})) == set(RUNNING_COLUMNS)


def test_a_look_up_is_unlisted_where_the_table_has_not_this_version_of_it():
    table = "cuA cuA 2000 0\ncuA cuA_v2 3020 0\ncuA cuA_v2_ptsz 7000 1\ncuB cuB 13000 0\n"
    known = {"cuA 2000 0", "cuA 3020 0", "cuA 7000 2", "cuB 13000 0", "cuB 13010 0"}
    odd = {" 0 0", "cuA 3030 0", "cuA_v2 3020 0", "cuC 2000 0"}

    assert unlisted(known | odd, table) == sorted(odd)


def test_the_process_that_looked_up_most_speaks_for_a_program():
    said = [
        {"look_ups": 3, "dlsym": 1, "versions": {"12000": 3}, "asked": []},
        {
            "look_ups": 440,
            "dlsym": 1,
            "versions": {"2000": 40, "13000": 300, "12080": 100},
            "asked": ["cuGLInit 2000 0", "cuInit 2000 0"],
        },
        {"look_ups": 0, "dlsym": 2, "versions": {}, "asked": []},
    ]

    assert most(said) == {
        "look_ups": 440,
        "dlsym": 1,
        "versions": {"oldest": 2000, "newest": 13000, "count": 3},
        "unlisted": ["cuGLInit 2000 0"],
        "processes": 3,
    }
    assert most(said[2:])["versions"] == {"count": 0}
    with pytest.raises(WorkerError):
        most([])

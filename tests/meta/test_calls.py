"""The table of calls has every function of every cuda.h, and its check finds what is missing."""

import json
import re
import subprocess
import sys

import pytest

SMALL_HEADER = """
#define CUDA_VERSION 99010
typedef enum A { CUDA_SUCCESS = 0 } CUresult;
typedef enum B { B_ = 0 } CUdriverProcAddressQueryResult;
typedef enum C { C_ = 0 } CUmemorytype;
typedef enum D { D_ = 0 } CUstreamCaptureMode;
CUresult cuInit(unsigned int Flags);
CUresult cuGetErrorName(CUresult error, const char **pStr);
CUresult cuNewInThisHeader(void);
"""


@pytest.fixture
def call_table(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "shim")
    import call_table

    return call_table


@pytest.fixture
def problems_of(call_table):
    def problems(text):
        return list(call_table.problems(call_table.read(text), call_table.headers()))

    return problems


@pytest.fixture
def text(root):
    return (root / "shim" / "calls.def").read_text()


def without_line(text, symbol):
    shorter, cut = re.subn(rf"^CALL\({symbol}, .*\n", "", text, flags=re.MULTILINE)
    assert cut == 1
    return shorter


def with_line(text, symbol, line):
    changed, count = re.subn(rf"^CALL\({symbol}, .*$", line, text, flags=re.MULTILINE)
    assert count == 1
    return changed


def test_the_table_classifies_every_function_of_every_header(problems_of, text):
    assert problems_of(text) == []


def test_every_version_from_12_4_on_is_known(call_table):
    versions = list(call_table.headers())

    assert versions[0] == "12.4"
    assert {"12.6", "12.8", "12.9", "13.0"} < set(versions)
    assert [v for v in versions if v.startswith("13.")] == [f"13.{i}" for i in range(6)]


def test_every_known_version_can_be_downloaded_again(call_table, root, monkeypatch):
    monkeypatch.syspath_prepend(root / "packaging")
    from headers import PACKAGES

    assert list(PACKAGES) == list(call_table.headers())


@pytest.mark.parametrize(
    ("symbol", "versions"),
    [
        ("cuLaunchKernel", 11),  # handled, and in all headers
        ("cuMemcpyHtoDAsync_v2_ptsz", 11),
        ("cuGetErrorName", 11),  # passed through
        ("cuMemAlloc", 11),  # kept only for old programs
        ("cuMemcpyBatchAsync", 8),  # since 12.8
        ("cuFabricCpyBatchAsync", 1),  # only in the newest header
    ],
)
def test_a_line_that_is_removed_is_missed_by_name(problems_of, text, symbol, versions):
    missed = problems_of(without_line(text, symbol))

    assert len(missed) == versions
    assert all(problem.startswith(f"'{symbol}' of cuda.h ") for problem in missed)


def test_lines_from_everywhere_are_missed_when_they_are_removed(call_table):
    rows = call_table.read(call_table.TABLE.read_text())
    newest = list(call_table.headers().values())[-1]

    for i in range(0, len(rows), 20):
        problems = list(call_table.problems(rows[:i] + rows[i + 1 :], {"13.5": newest}))
        assert [p.split()[0] for p in problems] == [f"'{rows[i].symbol}'"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('CALL(cuMemAlloc_v2, 3020, alloc, pass, "why not")', "is of class 'alloc' and passes"),
        ('CALL(cuMemAlloc_v2, 3020, alloc, pass, "free: ")', "gives no reason"),
        ('CALL(cuMemAlloc_v2, 3020, alloc, allocate, " ")', "gives no reason"),
        ('CALL(cuMemAlloc_v2, 3020, memory, allocate, "counted")', "has the class 'memory'"),
        ('CALL(cuMemAlloc_v2, 13050, alloc, allocate, "counted")', "cannot be new in 13050"),
        ('CALL(cuMemAllocX, 3020, alloc, allocate, "counted")', "is declared by no cuda.h"),
        ('CALL(cuInit, 2000, pass, forward, "again")', "'cuInit' stands after"),
    ],
)
def test_a_wrong_line_is_told(problems_of, text, line, complaint):
    changed = with_line(text, "cuMemAlloc_v2", line)

    assert any(complaint in problem for problem in problems_of(changed))


@pytest.mark.parametrize(
    ("symbol", "line", "other"),
    [
        ("cuStreamQuery_ptsz", 'query, pass, "asks"', "cuStreamQuery"),
        ("cuStreamQuery_ptsz", 'query, query_event, "asks"', "cuStreamQuery"),
        ("cuEventElapsedTime_v2", 'event, record_event, "why"', "cuEventElapsedTime"),
        ("cuEventElapsedTime_v2", 'query, pass, "asks"', "cuEventElapsedTime"),
    ],
)
def test_symbols_of_one_call_must_agree(problems_of, text, symbol, line, other):
    changed = with_line(text, symbol, f"CALL({symbol}, 13000, {line})")

    assert any(p.startswith(f"'{symbol}' and '{other}' differ") for p in problems_of(changed))


def test_a_line_that_cannot_be_read_is_an_error(call_table):
    with pytest.raises(ValueError, match=r"line 1 is no CALL\(symbol, since, class"):
        call_table.read('CALL(cuInit, kLookup, pass, "old form")')


def test_work_and_memory_that_nothing_handles_are_gaps_of_the_coverage(call_table):
    text = (
        'CALL(cuA, 2000, launch, launch_kernel, "gated")\n'
        'CALL(cuB, 2000, copy, pass, "no reason to pass")\n'
        'CALL(cuC, 2000, copy, pass, "free: moves nothing")\n'
        'CALL(cuD, 2000, sync, wait_stream, "closes segments")\n'
    )
    declared = {"12.4": ["cuA", "cuB", "cuX"], "13.0": ["cuA", "cuB", "cuC", "cuD"]}

    found = call_table.coverage(call_table.read(text), declared, "12.4", declared["12.4"])

    old, new = found["headers"]["12.4"], found["headers"]["13.0"]
    assert (old["functions"], old["unclassified"], old["unhandled"]) == (3, ["cuX"], ["cuB"])
    assert new["classes"]["copy"] == {"handled": 0, "passed": 1, "unhandled": 1}
    assert new["not_built"] == ["cuD"]


@pytest.fixture
def generated(root, tmp_path):
    (tmp_path / "cuda.h").write_text(SMALL_HEADER)
    for script in ("generate_entries.py", "generate_coverage.py"):
        command = [sys.executable, root / "shim" / script, "--cuda-include", tmp_path]
        subprocess.run([*command, "--out", tmp_path], check=True)
    return tmp_path


def test_a_build_has_what_its_header_declares_and_says_what_is_new_or_missing(generated):
    assert (generated / "shim_calls.inc").read_text() == "CALL(cuInit)\n"
    text = (generated / "coverage.inc").read_text().removeprefix('R"json(')
    found = json.loads(text.replace(')json"\nR"json(', "").removesuffix(')json"\n'))

    ours = found["headers"]["99.1"]
    assert (found["built_with"], ours["functions"]) == ("99.1", 3)
    assert ours["unclassified"] == ["cuNewInThisHeader"]
    assert "cuLaunchKernel" in found["headers"]["12.4"]["not_built"]

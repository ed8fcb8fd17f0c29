"""Filters by -e, and the table printed by -c."""

import pytest
from recordings import TABLE, Thread, recording_of

from tandem.errors import UsageError
from tandem.trace.filters import parse_filters
from tandem.trace.summary import summarise

CALLS = recording_of(
    Thread()
    .call("cuMemAlloc_v2", 1, 0x7F00, 4096, number=1, ns=30)
    .call("cuMemAlloc_v2", 1, 0, 1 << 50, number=2, result=2, ns=10)
    .call("cuMemcpyHtoDAsync_v2_ptsz", 1, 2, 3, 4, number=3)
    .call("cuStreamQuery", 4, number=4, result=600)
    .call("cuCtxSynchronize", number=5, ns=100)
    .call("cuCtxSynchronize", number=6, flags=2)
).calls


def kept(*expressions):
    keep = parse_filters(expressions, TABLE)
    return [call.number for call in CALLS if keep(call)]


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        ("trace=cuMemAlloc", [1, 2]),
        ("cuMemAlloc_v2", [1, 2]),
        ("trace=cuMemcpy*", [3]),
        ("trace=cuMemcpyHtoDAsync,cuStreamQuery", [3, 4]),
        ("trace=sync,query", [4, 5, 6]),
        ("trace=%sync,%query", [4, 5, 6]),
        ("trace=!sync,query,copy", [1, 2]),
        ("status=failed", [2]),
        ("status=!failed", [1, 3, 4, 5, 6]),
        ("status=successful", [1, 3, 5]),
        ("status=failed,unfinished", [2, 6]),
    ],
)
def test_what_an_expression_keeps(expression, numbers):
    assert kept(expression) == numbers


def test_several_expressions_must_all_hold():
    assert kept("trace=alloc", "status=success") == [1]
    assert kept() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("trace=cuMemAloc", r"'cuMemAloc' is not an intercepted call; did you mean 'cuMemAlloc'\?"),
        ("trace=", "trace='' is not an intercepted call; give a name"),
        (
            "trace=cuMemAlloc,nonsense",
            "'nonsense' is not an intercepted call; give .* a class: alloc",
        ),
        ("status=bad", "status='bad' is not one of failed, success, unfinished"),
        ("fault=x", "'fault=x' filters by 'fault'; known are trace=... and status=..."),
    ],
)
def test_wrong_expressions_say_what_there_is(expression, words):
    with pytest.raises(UsageError, match=words):
        parse_filters([expression], TABLE)


def test_the_summary_adds_up_with_what_took_longest_first():
    summary = summarise(CALLS)
    sync, alloc, *_ = summary.sorted()

    assert (sync.name, sync.calls, sync.total_ns, sync.max_ns) == ("cuCtxSynchronize", 2, 100, 100)
    assert (sync.returned, sync.mean_ns) == (1, 100)  # the other was still under way at the end
    assert (alloc.calls, alloc.errors, alloc.mean_ns) == (2, 1, 20)
    assert summary.rows["cuStreamQuery"].errors == 0
    lines = summary.lines()
    assert lines[0].split() == ["share", "total", "mean", "max", "calls", "errors", "call"]
    assert lines[-1].split() == ["100.0%", "160ns", "32ns", "100ns", "6", "1", "total"]


def test_a_summary_of_nothing_is_a_table():
    assert summarise([]).lines()[-1].split() == ["0.0%", "0ns", "0ns", "0ns", "0", "total"]

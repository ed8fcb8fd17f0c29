"""A bench of several parts, one of which fails."""

import pytest
from bench import __main__ as bench
from bench.bars import bar
from bench.parts import measured as of_parts
from bench.stage import NotMeasuredError, OutOfTimeError


def measured():
    return {"ns": 3, "bars": {"ns": bar(3, 5)}}


def failing(error):
    def measure():
        raise error

    return measure


@pytest.fixture
def found(capsys):
    def run(**parts):
        return of_parts("some", parts), capsys.readouterr()

    return run


@pytest.mark.parametrize("error", [NotMeasuredError("no room"), OSError(28, "no room")])
def test_what_finished_is_kept_when_a_later_part_fails(found, error):
    result, printed = found(first=measured, second=failing(error), third=measured)

    assert (result["first"], result["third"]) == ({"ns": 3}, {"ns": 3})
    assert "no room" in result["second"]["error"]
    assert result["bars"]["first_ns"]["ok"]
    assert not result["bars"]["second_measured"]["ok"]
    assert not bench._is_good(result)
    assert "second: not measured" in printed.err
    assert "first_ns" in printed.out


def test_after_the_time_is_over_nothing_more_is_begun(found):
    late = OutOfTimeError("it did not end within 58 s")

    result, _ = found(first=measured, second=failing(late), third=measured)

    assert result["first"] == {"ns": 3}
    assert result["second"] == result["third"] == {"error": "it did not end within 58 s"}


def test_all_parts_measured_is_good(found):
    result, _ = found(first=measured, second=measured)

    assert bench._is_good(result)

"""The table of errors."""

import grpc
import pytest

from tandem import errors
from tandem.errors import ERRORS, TandemError


def leaves():
    return {e for e in vars(errors).values() if isinstance(e, type) and TandemError in e.__bases__}


def test_every_error_has_one_row():
    assert {row.error for row in ERRORS} == leaves()
    assert len(ERRORS) == len(leaves())


def test_statuses_and_exit_codes_are_one_to_one():
    assert len({row.grpc_status for row in ERRORS}) == len(ERRORS)
    assert len({row.exit_code for row in ERRORS}) == len(ERRORS)


def test_every_status_is_one_of_grpc():
    assert {row.grpc_status for row in ERRORS} <= {status.name for status in grpc.StatusCode}


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.error.__name__)
def test_an_error_survives_the_wire(row):
    error = row.error("text")

    assert errors.from_grpc_status(errors.grpc_status(error)) is row.error
    assert errors.exit_code(error) == row.exit_code


def test_every_status_of_grpc_becomes_one_of_our_errors():
    for status in grpc.StatusCode:
        assert errors.from_grpc_status(status.name) in leaves()


def test_a_status_that_no_server_should_send_is_a_bug():
    assert errors.from_grpc_status("DATA_LOSS") is errors.BugError


def test_no_exit_code_is_one_of_a_shell():
    assert not {row.exit_code for row in ERRORS} & {0, 1, 75, 125, 126, 127}


def test_a_subclass_counts_as_its_base():
    class Late(errors.DeadlineError):
        pass

    assert errors.exit_code(Late("late")) == 8
    assert errors.grpc_status(TandemError("bare")) == "INTERNAL"


def test_every_error_says_when_it_is_not_raised():
    for error in leaves() - {errors.BugError}:
        assert "Not raised" in error.__doc__, error

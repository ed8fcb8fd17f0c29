"""The table of errors."""

import pickle
import re

import grpc
import pytest

from tandem import errors
from tandem.errors import ERRORS, REASONS, TandemError


def leaves():
    return {e for e in vars(errors).values() if isinstance(e, type) and TandemError in e.__bases__}


def test_every_error_has_one_row():
    assert {row.error for row in ERRORS} == leaves()
    assert len(ERRORS) == len(leaves())


def test_statuses_and_exit_codes_are_one_to_one():
    assert len({row.grpc_status for row in ERRORS}) == len(ERRORS)
    assert len({row.exit_code for row in ERRORS}) == len(ERRORS)


def test_reasons_are_one_to_one_and_words_of_googles_form():
    defaults = {row.reason for row in ERRORS}

    assert len(defaults) == len(ERRORS)
    assert not defaults & REASONS.keys()
    for reason in defaults | REASONS.keys():
        assert re.fullmatch("[A-Z][A-Z0-9_]{0,61}[A-Z0-9]", reason), reason


def test_a_reason_says_closer_what_its_error_says():
    assert set(REASONS.values()) <= leaves()
    assert errors.NotFoundError("x").reason == "NOT_FOUND"
    assert errors.NotFoundError("x", reason="AMBIGUOUS_NAME").reason == "AMBIGUOUS_NAME"
    assert pickle.loads(pickle.dumps(errors.StateError("x", reason="JOB_ENDED"))).reason == (
        "JOB_ENDED"
    )


def test_every_reason_is_given_somewhere_and_by_its_own_error(request):
    sources = [
        file.read_text()
        for folder in ("client/tandem", "daemon/tandemd")
        for file in request.config.rootpath.glob(f"{folder}/**/*.py")
    ]
    given = {
        (reason, error)
        for text in sources
        for error, reason in re.findall(
            r'raise (\w+Error)\((?:(?!raise ).)*?reason="([A-Z_]+)"', text, re.DOTALL
        )
    }
    of_calls = {"NO_TOKEN"}  # raised before a servicer is called

    assert {reason for reason, _ in given} == REASONS.keys() - of_calls
    assert {(reason, REASONS[reason].__name__) for reason, _ in given} == given


def test_the_page_has_every_reason_beside_its_error(request):
    page = (request.config.rootpath / "docs" / "python.md").read_text()
    lines = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}

    for row in ERRORS:
        assert f"`{row.reason}`" in lines[row.error.__name__]
    for reason, error in REASONS.items():
        assert f"`{reason}`" in lines[error.__name__]


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
        assert errors.reason_of_status(status.name) in {row.reason for row in ERRORS}


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

"""Variables of the software GPU that only the driver library would read."""

import pytest

from tandem.cli._softgpu_variables import refuse_wrong_variables
from tandem.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (
            "QUEUE",
            "abc",
            "TANDEM_SOFTGPU_QUEUE is 'abc', must be a number of operations, at least 1",
        ),
        ("QUEUE", "0", "TANDEM_SOFTGPU_QUEUE is '0', must be"),
        ("QUEUE", "-1", "TANDEM_SOFTGPU_QUEUE is '-1', must be"),
        ("KERNELS", "/none.so", "TANDEM_SOFTGPU_KERNELS: the library '/none.so' does not exist"),
    ],
)
def test_wrong_values_are_refused(name, value, complaint):
    with pytest.raises(UsageError) as error:
        refuse_wrong_variables({f"TANDEM_SOFTGPU_{name}": value})

    assert str(error.value).startswith(complaint)


def test_a_misspelt_variable_is_guessed_and_right_ones_are_not_mentioned(capsys):
    refuse_wrong_variables(
        {
            "TANDEM_SOFTGPU_TIMLINE": "x",
            "TANDEM_SOFTGPU_QUEUE": "7",
            "TANDEM_SOFTGPU_MIG": "",
            "TANDEM_SOFTGPU_GREEN": "none",
        }
    )

    assert capsys.readouterr().err == (
        "warning: nothing reads the variable TANDEM_SOFTGPU_TIMLINE; "
        "did you mean TANDEM_SOFTGPU_TIMELINE?\n"
    )

"""What `tandem cancel` says of a job that does not seem to end."""

import pytest

from tandem.cli import cancel
from tandem.errors import DeadlineError, UnavailableError


class Client:
    """A client whose daemon answers in the end, or fails like this."""

    def __init__(self, failure=None):
        self._failure = failure

    def status(self):
        if self._failure:
            raise self._failure


@pytest.mark.parametrize(
    ("failure", "error", "said"),
    [
        (None, DeadlineError, "not ended within 10 s, the last 10 s of it after SIGKILL: a proc"),
        (DeadlineError("mute"), UnavailableError, "within 10 s, and mute; nobody sends SIGKILL"),
        (UnavailableError("gone"), UnavailableError, "within 10 s, and gone; nobody sends SIGKILL"),
    ],
)
def test_a_job_is_late_only_where_the_daemon_could_have_told_its_end(
    monkeypatch, failure, error, said
):
    def late(*_, **__):
        raise DeadlineError("j-1 not ended within 10 s")

    monkeypatch.setattr(cancel, "show_arrivals", late)

    with pytest.raises(error, match=said):
        cancel._await(Client(failure), ["j-1"], grace_s=0, as_json=False)

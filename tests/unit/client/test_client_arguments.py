"""Arguments that the client refuses before it contacts a daemon; none runs here."""

import math

import pytest

from tandem import _convert
from tandem._changes import Changes
from tandem._client import Client
from tandem._job import job
from tandem._pressure import on_memory_pressure
from tandem.errors import StateError, UnavailableError, UsageError


@pytest.fixture
def client(tmp_path):
    with Client(directory=str(tmp_path)) as client:
        yield client


@pytest.mark.parametrize(("named", "origin"), [("", "TANDEM_RUNTIME_DIR"), ("x", "directory")])
def test_the_usual_directory_is_called_by_what_it_comes_from(tmp_path, monkeypatch, named, origin):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", str(tmp_path))
    client = Client(directory=str(tmp_path / named))

    with pytest.raises(UnavailableError, match=rf"answers in .* \({origin}\)"):
        client.status()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"memory": 20 * 2**30}, "memory is text, as in .*, not 21474836480"),
        ({"sm": 30}, "sm is text"),
        ({"slo": 5}, "slo is text"),
        ({"preemptible": "no"}, "preemptible is True, False or 'default', not 'no'"),
    ],
)
def test_changes_of_another_type_are_called_by_name(client, change, complaint):
    with pytest.raises(TypeError, match=complaint):
        client.set("train", **change)


@pytest.mark.parametrize("call", ["job", "pause", "resume", "explain", "windows", "set"])
def test_a_name_is_text(client, call):
    changes = {"priority": "batch"} if call == "set" else {}
    with pytest.raises(TypeError, match="name is text"):
        getattr(client, call)(3, **changes)


@pytest.mark.parametrize("call", ["job", "cancel", "set_policy"])
def test_a_name_of_bytes_that_are_no_text_is_refused(client, call):
    with pytest.raises(UsageError, match=r"name '\\udcff' has characters that are not valid text"):
        getattr(client, call)("\udcff")


def test_nothing_to_change_is_said_in_the_words_of_set(client):
    with pytest.raises(UsageError, match="nothing to change; give priority, memory"):
        client.set("train")


def test_what_is_said_of_a_job_has_the_same_keywords_everywhere():
    assert list(Changes.__annotations__) == list(_convert.CHANGES)


@pytest.mark.parametrize(
    "change", [lambda client, **said: client.set("j", **said), lambda _, **said: job(**said)]
)
def test_a_keyword_that_there_is_not_is_refused_with_those_that_there_are(client, change):
    with pytest.raises(TypeError, match="argument 'memroy'; it has priority, memory, memory_min"):
        change(client, memroy="1GiB")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.set_group("g", "priority=batch"), "changes are a mapping"),
        (lambda client: client.wait("j", deadline_s="x"), "deadline_s is a number of seconds"),
        (lambda client: client.jobs(deadline_s=None), "deadline_s is a number of seconds"),
        (lambda client: client.cancel("j", grace_s="x"), "grace_s is a number of seconds"),
        (lambda client: client.cut_gpu(3), "mig is text"),
        (lambda _: on_memory_pressure(3), "3 cannot be"),
    ],
)
def test_what_is_of_another_type_is_called_by_name(client, call, words):
    with pytest.raises(TypeError, match=words):
        call(client)


@pytest.mark.parametrize("what", ["user", "group"])
def test_nobody_is_not_everybody(client, what):
    with pytest.raises(UsageError, match=f"{what} is empty; leave it out for all jobs"):
        client.history(**{what: ""})


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1, 0, 1e10])
def test_a_deadline_is_a_time_to_come(client, seconds):
    with pytest.raises(UsageError, match=r"deadline_s is .*, not a number of seconds above 0"):
        client.jobs(deadline_s=seconds)
    with pytest.raises(UsageError, match="deadline_s"):
        next(client.watch(deadline_s=seconds))
    with pytest.raises(UsageError, match="patience_s"):
        client.windows("train", patience_s=seconds)


@pytest.mark.parametrize(
    "call", [Client.status, Client.watch, lambda client: client.windows("train")]
)
def test_a_closed_client_says_so(client, call):
    client.close()

    with pytest.raises(StateError, match="this client is closed; make another"):
        call(client)

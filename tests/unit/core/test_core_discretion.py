"""Messages leave out ids and names of jobs that the reader may not know about."""

import pytest

from tandemd.core.explain.discretion import SOMEBODY, SOMETHING, discreet
from tandemd.core.model import Job, JobSpec


def job(number, name=""):
    return Job(
        job_id=number, uid=0, arrival=0, created_ns=0, registered=True, spec=JobSpec(name=name)
    )


@pytest.mark.parametrize("name", ["", "secret", "it's", 'a "b"', "'\"", "back\\", "j-9"])
def test_a_title_is_left_out_as_a_whole(name):
    text = f"waits: {job(0x1F, name).title} (class normal) has the gpu, behind {job(2).title}"

    said = discreet(text, lambda job_id: job_id == 2)

    assert said == f"waits: {SOMEBODY} (class normal) has the gpu, behind j-2"


def test_who_may_know_of_all_hears_all():
    text = f"shares the gpu with {job(1, 'one').title}, {job(2).title}"

    assert discreet(text, lambda job_id: True) == text


def test_of_one_that_nobody_knows_any_more_it_is_not_said_whose_it_was():
    said = discreet(f"held: {job(1, 'own').title} has the gpu", {2: False}.get)

    assert said == f"held: {SOMETHING} has the gpu"

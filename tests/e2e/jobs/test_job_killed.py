"""A job that is killed at a bad moment, and what it leaves behind."""

import pytest
from running_job import WAITING, until

MIB = 1 << 20


@pytest.mark.parametrize(
    "call", ["gpu.affine(word, 2, 1, slow=True)", "ok(cu.cuCtxSynchronize())", "free(alloc(4096))"]
)
def test_a_job_killed_in_a_call_leaves_nothing_behind(place, call):
    other = place.job("other", "-p", "batch")
    victim = place.job("victim", "-p", "batch")
    with place.client() as client:
        before = place.used_bytes()
        victim.do(f"int(alloc({30 * MIB}))")
        assert place.used_bytes() >= before + 30 * MIB
        victim.go_on(f"lambda: {call}")

        victim.kill()

        until(lambda: [j.display_name for j in client.jobs()] == ["other"], what="ps forgets it")
        until(lambda: place.used_bytes() < before, what="its memory is back")
        assert other.do("compute()") == [15]
        assert other.end() == 0


def test_a_job_killed_at_a_closed_gate_leaves_nothing_behind(place):
    other = place.job("other", "-p", "batch")
    victim = place.job("victim", "-p", "batch")
    with place.client() as client:
        before = place.used_bytes()
        victim.do(f"int(alloc({30 * MIB}))")
        client.pause("victim")
        victim.start("compute()")
        until(lambda: WAITING in client.explain("victim").lines, what="it waits at its gate")

        victim.kill()

        until(lambda: [j.display_name for j in client.jobs()] == ["other"], what="ps forgets it")
        until(lambda: place.used_bytes() < before, what="its memory is back")
        assert other.do("compute()") == [15]
        assert other.end() == 0

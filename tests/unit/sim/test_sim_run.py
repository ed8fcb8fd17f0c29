"""Small workloads whose outcome can be computed by hand."""

import pytest
from scenes import MS, ends_ms, gaps_ns, played, server, trainer, turns, workload

from tandem.errors import BugError
from tandemd.core.events import SetSms
from tandemd.core.model import SmSet
from tandemd.sim.poller import PERIOD_NS
from tandemd.sim.report import percentile, report_of
from tandemd.sim.run import Simulation

QUANTUM_MS, SWITCH_MS, SEGMENT_MS = 10, 0.2, 0.1


def p99_ms(outcome, name):
    (job,) = (job for job in outcome.jobs if job.name == name)
    return percentile(job.requests_ns, 0.99) / MS


def test_alone_a_trainer_takes_its_iterations_and_nothing_else():
    outcome = played(trainer("a", 50, "20ms", host="3ms"))

    assert ends_ms(outcome) == {"a": 50 * (20 + 3)}
    assert outcome.switches == 0


def test_fifo_runs_two_trainers_one_after_the_other():
    """Both submit a window before the daemon's first round; the second's window cuts in once."""
    outcome = played(trainer("a", 50, "20ms"), trainer("b", 50, "20ms"), policy="fifo")

    cut_in_ms = SWITCH_MS + 2 * SEGMENT_MS + SWITCH_MS
    first_ms = 50 * 20 + cut_in_ms
    assert ends_ms(outcome) == {
        "a": first_ms,
        "b": pytest.approx(first_ms + SWITCH_MS + 50 * 20 - 2 * SEGMENT_MS),
    }


def test_under_fair_two_equal_trainers_have_a_quantum_each_in_turn():
    """Two rounds come one late: the one that finds a job busy, and the one that finds it idle.

    So a turn is a quantum plus a period, and the next begins a period after its gate has closed.
    """
    outcome = played(
        trainer("a", 50, "20ms", marks=False), trainer("b", 50, "20ms", marks=False), policy="fair"
    )

    steady = turns(outcome)[4:-2]
    assert {turn.worked_ns for turn in steady} == {QUANTUM_MS * MS + PERIOD_NS}
    assert [turn.context for turn in steady] == [1, 2] * (len(steady) // 2)
    assert set(gaps_ns(outcome)[4:-2]) == {PERIOD_NS}
    assert all(job.gpu_ns == 1000 * MS for job in outcome.jobs)


def test_under_fair_gpu_time_goes_by_the_weights_of_classes():
    outcome = played(
        trainer("normal", 1000, "20ms"),
        trainer("batch", 1000, "20ms", **{"class": "batch"}),
        until_ms=2000,
        policy="fair",
    )

    normal, batch = (job.gpu_ns for job in outcome.jobs)
    assert normal / batch == pytest.approx(4, rel=0.05)


def test_a_share_of_the_sms_is_a_share_of_time():
    outcome = played(
        trainer("most", 1000, "20ms", sm="75%"),
        trainer("rest", 1000, "20ms", sm="25%"),
        until_ms=2000,
        policy="fair",
    )

    most, rest = (job.gpu_ns for job in outcome.jobs)
    assert most / (most + rest) == pytest.approx(0.75, abs=0.02)


SERVING = server("server", "2ms", rate=20, duration="5s", **{"class": "latency"})
TRAINING = trainer("trainer", 250, "20ms", **{"class": "batch"})


def test_under_priority_a_server_is_near_as_quick_as_alone_and_under_fair_it_is_not():
    alone_ms = p99_ms(played(SERVING), "server")

    # A request may wait for a window and a switch, and so may the next ones behind it.
    under_priority_ms = p99_ms(played(SERVING, TRAINING, policy="priority"), "server")
    under_fair_ms = p99_ms(played(SERVING, TRAINING, policy="fair"), "server")

    assert under_priority_ms - alone_ms < 3 * (2 * SEGMENT_MS + SWITCH_MS)
    assert under_fair_ms > alone_ms + QUANTUM_MS / 2


ONE_REQUEST = server("server", "2ms", arrivals=["100050us"], **{"class": "latency"})


def test_a_request_takes_the_gpu_from_a_trainer_whose_slice_is_over():
    outcome = played(ONE_REQUEST, TRAINING, policy="priority")

    (took_ns,) = outcome.jobs[0].requests_ns
    assert took_ns == (SWITCH_MS + 2) * MS


@pytest.mark.parametrize(
    ("kernel", "segment_us"), [("1us", 100), ("60us", 120), ("1ms", 1000)], ids=str
)
def test_behind_a_request_runs_what_was_queued_and_the_rest_when_it_lingers_no_more(
    kernel, segment_us
):
    """Two segments of whole kernels were queued, and the first had begun."""
    linger_ms = 5
    requests = server("server", "2ms", arrivals=["100050us", "1s"], **{"class": "latency"})
    training = trainer("trainer", 50, "24ms", kernel=kernel)
    outcome = played(requests, training, policy="priority", linger_us=linger_ms * 1000)

    request = next(turn for turn in turns(outcome) if turn.context == 1)
    queued, rest = [s for s in outcome.stretches if s.begin_ns > request.end_ns][:2]
    assert queued.begin_ns - request.end_ns == SWITCH_MS * MS
    begun_us = (100_050 - 4 * 24_000) % segment_us
    assert queued.end_ns - queued.begin_ns == (2 * segment_us - begun_us) * 1000
    assert rest.begin_ns - request.end_ns == linger_ms * MS


def whole_iterations(outcome, context, iteration_ns):
    return [turn.worked_ns % iteration_ns for turn in turns(outcome) if turn.context == context]


def test_who_is_not_preemptible_loses_the_turn_between_iterations_alone():
    jobs = trainer("whole", 20, "50ms", host="2ms"), trainer("other", 20, "50ms", host="2ms")
    cut = played(*jobs, policy="fair")
    kept = played(jobs[0] | {"preemptible": False}, jobs[1], policy="fair")

    # In the first turn the other's window cuts in before the daemon's first round.
    assert sum(map(bool, whole_iterations(kept, 1, 50 * MS))) <= 2
    assert sum(map(bool, whole_iterations(cut, 1, 50 * MS))) > 20


GIB = {"memory": "10GiB"}
TWO = [
    trainer(name, 20, "20ms", persistent="1GiB", ephemeral="5GiB", host="2ms")
    for name in ("a", "b")
]


def test_without_lanes_the_second_iteration_finds_no_memory():
    outcome = played(*TWO, gpu=GIB, policy="fair")

    assert [job.problem for job in outcome.jobs] == ["", "out of memory"]


@pytest.mark.parametrize("promises", [True, False], ids=["promised", "unknown"])
def test_lanes_let_in_only_what_fits(promises):
    jobs = [job | {"promises": promises} for job in TWO]
    outcome = played(*jobs, gpu=GIB, policy="lanes")

    assert [job.problem for job in outcome.jobs] == ["", ""]
    assert [job.steps for job in outcome.jobs] == [20, 20]
    assert not outcome.is_stuck
    # Once both are known, iterations run one at a time: none loses the GPU before its end.
    assert {turn.worked_ns % (20 * MS) for turn in turns(outcome)[3:]} == {0}


def test_a_promise_that_can_never_be_kept_is_refused_under_lanes_as_tandem_run_does():
    jobs = trainer("a", 5, "20ms", persistent="8GiB", ephemeral="5GiB"), TWO[1]
    outcome = played(*jobs, gpu=GIB, policy="lanes")

    refused, other = outcome.jobs
    assert refused.problem.startswith("refused: it may use 13 GiB, 3 GiB more than the largest gpu")
    assert (other.problem, other.held_ns) == ("", pytest.approx(0, abs=PERIOD_NS))


def test_memory_of_a_job_that_left_is_kept_for_a_moment_before_lanes_let_others_in():
    """The driver may take a while to give the memory back (`memory_grace_ns`)."""
    jobs = [trainer(name, 5, "20ms", persistent="6GiB") for name in ("a", "b")]
    first, second = played(*jobs, gpu=GIB, policy="lanes").jobs

    assert second.ended_ns - first.ended_ns == pytest.approx((1000 + 100) * MS, rel=0.01)


def test_where_nothing_happens_the_daemon_still_comes_round():
    """A job at the end of its iteration gets its lane by a look that nothing else triggers."""
    jobs = (
        trainer("first", 4, "3011us", host="973us", arrival="1488us"),
        trainer("second", 5, "4129us", host="2975us", arrival="2648us"),
        trainer("big", 2, "2043us", arrival="1387us", persistent="1GiB", ephemeral="2GiB"),
    )
    outcome = played(*jobs, gpu={"memory": "4GiB"}, policy="lanes")

    assert not outcome.is_stuck
    assert [job.steps for job in outcome.jobs] == [4, 5, 2]


def test_a_job_beyond_its_limit_of_memory_ends():
    outcome = played(trainer("a", 5, "1ms", memory="1GiB", persistent="2GiB", promises=False))

    assert outcome.jobs[0].problem == "out of memory"


def test_groups_take_turns_as_one():
    jobs = [
        trainer(name, 10, "20ms", group=group) for name, group in zip("abc", "xxy", strict=True)
    ]
    outcome = played(*jobs, policy="fair")

    ends = ends_ms(outcome)
    assert ends["c"] < min(ends["a"], ends["b"])  # half of the time is its own


def test_until_cuts_a_run_off():
    outcome = played(trainer("a", 1000, "20ms"), until_ms=105)

    assert outcome.ended_ns == 105 * MS
    assert outcome.jobs[0].ended_ns is None
    assert outcome.jobs[0].gpu_ns == 105 * MS


def test_a_job_that_comes_later_waits_for_nobody_before():
    outcome = played(trainer("a", 2, "10ms"), trainer("b", 2, "10ms", arrival="1s"))

    assert ends_ms(outcome) == {"a": 20, "b": pytest.approx(1020 + SWITCH_MS)}


def test_the_same_jobs_end_in_another_order_under_another_policy():
    jobs = trainer("long", 50, "20ms"), trainer("short", 5, "20ms", arrival="15ms")
    orders = {
        policy: sorted(ends := ends_ms(played(*jobs, policy=policy)), key=ends.get)
        for policy in ("fifo", "fair")
    }

    assert orders == {"fifo": ["long", "short"], "fair": ["short", "long"]}


def test_a_slowdown_is_told_from_the_same_job_alone():
    one = report_of(workload(trainer("a", 5, "20ms")))
    two = report_of(workload(trainer("a", 5, "20ms"), trainer("b", 5, "20ms"), policy="fifo"))

    assert (one.antt, one.stp, one.fairness) == (1, 1, 1)
    slowdowns = [job.slowdown for job in two.jobs]
    assert slowdowns == [pytest.approx(1, rel=0.01), pytest.approx(2, rel=0.01)]
    assert two.antt == pytest.approx(1.5, rel=0.01)
    assert two.stp == pytest.approx(1.5, rel=0.01)


def test_an_action_that_is_not_modelled_is_no_silent_matter():
    simulation = Simulation(workload(trainer("a", 5, "20ms")))

    with pytest.raises(BugError, match="does not model SetSms"):
        simulation._perform(SetSms(process_id=1, set=SmSet(0, 1, 8), turn=1))

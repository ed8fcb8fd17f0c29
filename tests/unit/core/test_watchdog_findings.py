"""When findings begin and end, and what the scheduler and people are told."""

from dataclasses import dataclass, replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import AnnounceJob
from tandemd.core.model import Options, WaitReason
from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.rivalry import rivalry_on
from tandemd.core.watchdog.rule import RULES
from tandemd.core.watchdog.rules.leak import Leak
from tandemd.core.watchdog.watchdog import Watch, Watchdog, default_rules

SECOND = 1_000 * MS


@dataclass(frozen=True)
class Busy:
    """A rule that finds something wrong with every job that has work."""

    span_ns: int = 0

    def find(self, history, *, standing):
        del standing
        look = history.last
        if not look.busy:
            return None
        return Finding(
            rule="busy", since_ns=look.now_ns, what=f"{look.launches}", why="", advice=""
        )


class Watching:
    """A conversation with the scheduler, and a watchdog that looks once a second."""

    def __init__(self, **rules):
        self.talk = Talk()
        self.dog = Watchdog(Watch(rules=rules or {"busy": Busy()}))

    def look(self, looks=1):
        """Make so many looks, pass the events on to the scheduler, and return them."""
        events = []
        for _ in range(looks):
            self.talk.tick(1000)
            new = self.dog.look(self.talk.core, self.talk.now_ns)
            for event in new:
                self.talk.say(event)
            events += new
        return events

    def rules(self, job_id=1):
        return [found.rule for found in self.dog.findings(job_id)]


@pytest.fixture
def watching():
    watching = Watching()
    watching.talk.attach(1)
    watching.talk.works(1)
    return watching


def test_a_finding_begins_with_the_second_look(watching):
    assert watching.look() == []
    (began,) = watching.look()

    assert (began.job_id, began.finding.rule) == (1, "busy")
    assert watching.rules() == ["busy"]


def test_it_ends_with_the_third_look_without(watching):
    watching.look(2)
    watching.talk.rests(1)

    assert watching.look(2) == []
    assert watching.rules() == ["busy"]
    (ended,) = watching.look()
    assert (ended.finding.rule, watching.rules()) == ("busy", [])


@pytest.mark.parametrize("ends", ["steps", "iterations"])
def test_a_leak_is_found_whether_a_job_marks_its_iterations_or_they_are_found(ends):
    watching = Watching(leak=Leak())
    watching.talk.attach(1)

    for count in range(40):
        held_bytes = (1000 + 100 * count) << 20
        figures = {ends: 10 * count, "device_bytes": held_bytes, "iteration_bytes": held_bytes}
        watching.talk.sample(1, **figures)
        watching.look()

    assert watching.rules() == ["leak"]


def test_what_comes_and_goes_does_not_flap(watching):
    events = watching.look(2)
    for _ in range(10):
        watching.talk.rests(1)
        events += watching.look(2)
        watching.talk.works(1)
        events += watching.look()

    assert len(events) == 1


def test_figures_stay_fresh_and_the_beginning_stays(watching):
    watching.look(2)
    (before,) = watching.dog.findings(1)
    watching.talk.sample(1, launches=70)

    watching.look()

    (after,) = watching.dog.findings(1)
    assert (after.what, after.since_ns) == ("70", before.since_ns)


def test_watchers_and_the_story_hear_of_both_ends(watching):
    watching.look(2)
    (began,) = watching.talk.of(AnnounceJob)
    watching.talk.rests(1)
    watching.look(3)
    (ended,) = watching.talk.of(AnnounceJob)

    assert (began.kind, ended.kind) == ("finding", "finding-over")
    assert began.rule == ended.rule == "busy"
    assert [line for _, line in watching.talk.core.job(1).story][-2:] == ["busy: 0", "busy: over"]


def test_the_findings_of_a_job_that_ended_are_forgotten(watching):
    watching.look(2)
    watching.talk.leave(1)

    assert watching.look(5) == []
    assert watching.rules() == []


def test_a_registered_job_without_a_process_has_its_finding_ended():
    watching = Watching()
    watching.talk.register(1)
    watching.talk.attach(1)
    watching.talk.works(1)
    watching.look(2)
    watching.talk.leave(1)

    (ended,) = watching.look(5)
    assert ended.finding.rule == "busy"


def test_a_rule_that_is_switched_off_takes_its_findings_along(watching):
    watching.look(2)

    watching.dog.change(Watch(rules={}))

    assert watching.rules() == []
    assert not watching.dog.is_due(10**18)


def test_looks_are_as_far_apart_as_the_period():
    dog = Watchdog(Watch(period_ns=SECOND))
    assert dog.is_due(5 * SECOND)
    dog.look(Talk().core, 5 * SECOND)
    assert not dog.is_due(6 * SECOND - 1)
    assert dog.is_due(6 * SECOND)


class Trainer:
    """A process that follows its gate: each second it works if the gate is open, else it waits."""

    def __init__(self, talk, number, job_class):
        self.talk, self.number = talk, number
        self.ran_ns = self.waited_ns = 0
        talk.attach(number, job_class)

    def goes_on(self):
        runs = self.talk.is_open(self.number)
        self.ran_ns += SECOND * runs
        self.waited_ns += SECOND * (not runs)
        self.talk.sample(
            self.number,
            busy=runs,
            waiting_threads=int(not runs),
            wait_reason=WaitReason.NONE if runs else WaitReason.GATE,
            wait_since_ns=0 if runs else self.talk.now_ns,
            wait_total_ns=(0, self.waited_ns, 0, 0, 0),
            launches=self.ran_ns // MS,
            iterations=self.ran_ns // (100 * MS),
            exclusive_ns=self.ran_ns,
            iteration_bytes=1 << 30,
        )


@pytest.mark.parametrize("policy", ["fair", "fifo", "priority"])
def test_two_trainers_that_share_a_gpu_have_no_finding(policy):
    watching = Watching(**default_rules())
    watching.talk.policy(policy)
    trainers = [Trainer(watching.talk, n, NORMAL) for n in (1, 2)]

    for _ in range(90):
        for trainer in trainers:
            trainer.goes_on()
        assert watching.look() == []

    assert all(trainer.ran_ns for trainer in trainers)


def test_a_job_at_rest_costs_no_look_and_loses_what_rules_find_in_work():
    watching = Watching(**default_rules())
    watching.talk.attach(1)
    watching.look(5)
    history = watching.dog._histories[1]
    assert (len(history.looks), history.is_at_rest) == (1, True)

    watching.talk.works(1)
    watching.look()
    assert [look.now_ns // SECOND for look in history.looks] == [2, 6, 7]


def test_a_batch_job_without_its_minimal_share_starves():
    watching = Watching(**default_rules())
    talk = watching.talk
    talk.attach(1)
    talk.attach(2, BATCH)
    events = []
    for second in range(14):
        talk.works(1, ran_ms=1000)
        talk.waits(2)
        waited = (0, second * SECOND, 0, 0, 0)
        talk.sample(2, wait_total_ns=waited)
        events += watching.look()

    assert {(event.job_id, event.finding.rule) for event in events} == {(2, "starvation")}
    assert "was owed 5.0%" in events[0].finding.what


def group_of(talk, process_id):
    return talk.core.group_of(talk.core.job(process_id))


def shares(policy, *classes, min_share=0.05, turn_ns=0):
    talk = Talk(Options(policy=policy, min_share=min_share))
    for number, job_class in enumerate(classes):
        talk.attach(number, job_class)
        talk.works(number)
    group_of(talk, 0).turn_ns = turn_ns
    (island,) = talk.core.islands.values()
    rivalry = rivalry_on(island, talk.core.policy, talk.core.options)
    return [rivalry.owed_share(group_of(talk, n)) for n in range(len(classes))]


@pytest.mark.parametrize(("policy", "quantum_ms"), [("fair", 7), ("fifo", 0)])
def test_how_long_a_turn_is_to_last_is_looked_at_as_the_policy_has_it(policy, quantum_ms):
    talk = Talk(Options(policy=policy, quantum_ns=7 * MS))
    talk.attach(1)
    (island,) = talk.core.islands.values()

    assert rivalry_on(island, talk.core.policy, talk.core.options).quantum_ns == quantum_ms * MS


def test_what_is_owed_is_what_the_policy_promises():
    assert shares("fair", NORMAL, NORMAL, BATCH) == pytest.approx([4 / 9, 4 / 9, 1 / 9])
    assert shares("priority", NORMAL, NORMAL, BATCH) == pytest.approx([0.475, 0.475, 0.05])
    assert shares("priority", LATENCY, NORMAL, BATCH) == pytest.approx([0, 0.05, 0.05])
    assert shares("fifo", NORMAL, BATCH) == [0, 0]
    assert shares("fair", BATCH) == [0]


def test_nothing_is_owed_while_memory_is_exchanged_with_the_turns():
    assert shares("fair", NORMAL, NORMAL, turn_ns=13 * 10**9) == [0, 0]


def test_every_rule_has_the_name_of_its_file_and_of_its_findings():
    for name, rule in RULES.items():
        assert rule.__module__.endswith(name.replace("-", "_"))
        assert rule() == replace(rule())

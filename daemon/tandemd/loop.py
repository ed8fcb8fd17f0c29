"""The one thread that owns the core: takes events, hands them over, performs the actions.

On the real clock, native threads watch the shared pages, and the loop sleeps in the poller until
something notable happens, a thread posts an errand, or the core is due to wake. On the virtual
clock the loop does all of that itself, so that a run is reproducible: once every
`VIRTUAL_ROUND_NS`, and as rarely as a native thread while nothing goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import structlog

from tandem import _native
from tandemd.core.events import (
    Action,
    AnnounceJob,
    ChargeGroup,
    CheckpointProcess,
    CloseGates,
    Event,
    FindPlan,
    KeepTrials,
    OpenGates,
    PlanFound,
    RequestsServed,
    SetHonourPresence,
    SignalJob,
    Ticked,
    UsageSampled,
    WakeAt,
)
from tandemd.core.model import Job
from tandemd.core.planner.planner import alternatives
from tandemd.core.planner.plans import Valued
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.sm_counts import given_sms, has_own_sms
from tandemd.core.tuner.pauses import serves_bursts
from tandemd.core.watchdog.watchdog import Watchdog
from tandemd.decisions import Decisions
from tandemd.edges.attach import AttachServer
from tandemd.edges.channel import Channels
from tandemd.edges.clock import Calendar, Clock
from tandemd.edges.worker import Worker
from tandemd.failures import Failures
from tandemd.observers import requests
from tandemd.observers.bounds import Bounds
from tandemd.observers.curves import Curves
from tandemd.observers.demands import Demands
from tandemd.observers.energies import Energies
from tandemd.observers.history import Histories
from tandemd.observers.recent import Recent
from tandemd.observers.scalings import Scalings, Wanted
from tandemd.observers.strangers import Strangers
from tandemd.observers.structure import Structures
from tandemd.observers.turn_log import TurnLog
from tandemd.observers.usages import usage_of
from tandemd.pasts import Pasts
from tandemd.questions import Questions
from tandemd.remembered import Remembered

VIRTUAL_ROUND_NS = 1_000_000
QUIET_ROUND_NS = 500_000_000  # the loop makes a round at least this often, even without news
POSTED_NS = 20_000_000  # the most time that a round spends on what was posted

log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a job, for watchers."""

    at_ns: int
    kind: str
    job_id: int
    rule: str = ""  # of a finding


def _after(ns: int) -> int:
    """Return the next grid time for a round on the virtual clock."""
    return (ns // VIRTUAL_ROUND_NS + 1) * VIRTUAL_ROUND_NS


class Loop:
    """Runs the core. `post`, `ask`, `stop` and `last_round_ns` are for any thread."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        clock: Clock,
        poller: _native.Poller,
        channels: Channels,
        remembered: Remembered | None = None,
    ) -> None:
        self.remembered = remembered or Remembered(None, at_once=True)
        self.scheduler = scheduler
        self.clock = clock
        self.calendar = Calendar(clock)
        self.decisions = Decisions(clock)
        self.poller = poller
        self.channels = channels
        self.failures = Failures()
        self.recent = Recent()
        self.strangers = Strangers()
        self.histories = Histories()
        self.watchdog = Watchdog()
        self.structures = Structures(poller)
        self.bounds, self.curves, self.demands = Bounds(poller), Curves(poller), Demands(poller)
        self.scalings = Scalings(poller, Worker("scalings", at_once=clock.is_virtual))
        self.plans = Worker("plans", at_once=clock.is_virtual)
        self.energies = Energies(
            poller=poller,
            clock=clock,
            worker=Worker("energy", at_once=clock.is_virtual),
            core=scheduler,
            pasts=Pasts(self.remembered, scheduler.energy),
        )
        self.watchers: set[Callable[[Change], None]] = set()  # called on the loop's thread
        self.turn_logs: set[TurnLog] = set()  # of clients that record; loop's thread only
        self.attach: AttachServer | None = None  # polled here on the virtual clock
        self.checkpoint: Callable[[CheckpointProcess], None] = lambda _: None
        self.signal: Callable[[SignalJob], None] = lambda _: None
        self.started_ns = self.last_round_ns = 0
        # Of the search for a plan; the worker's thread only.
        self._failures: dict[frozenset[int], str] = {}
        self._posted, self._questions = deque[Callable[[], None]](), Questions()
        self._stopping = threading.Event()
        self._wake_at_ns: int | None = None
        self._unsettled = False
        # On the virtual clock: whether the loop is in a long wait, and whether it has acted since
        # the last wait, which others may have seen.
        self._waits = self._acted = False
        self._afterwards: list[Callable[[], None]] = []

    def post(self, errand: Callable[[], None]) -> None:
        """Run something on the loop's thread, soon and in order."""
        self._posted.append(errand)
        self._wake()

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Run something on the loop's thread and return its answer or raise its error.

        Raises:
            TimeoutError: the loop did not come round within 5 s, or has ended; the question will
                not be run later.
        """

        def informed() -> Answer:
            if self._unsettled:  # the caller must not see facts without their conclusions
                self._settle(self.clock.now_ns())
            return question()

        return self._questions.ask(informed, self.post)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()
        self._wake()

    def _wake(self) -> None:
        self.poller.wake()
        if self._waits:
            self.clock.end_wait()

    def run(self) -> None:
        """Make rounds until `stop`; then release all jobs."""
        virtual = self.clock.is_virtual
        self.started_ns = self.last_round_ns = self.clock.now_ns()
        if not virtual:
            self.poller.start()
        try:
            while not self._stopping.is_set():
                notable = self._wait_virtual() if virtual else self._wait_real()
                self._round(notable=notable)
        finally:
            self.channels.release_all()
            self.poller.stop()
            self._questions.end()

    def handle(self, event: Event) -> None:
        """Hand an event to the core and perform its actions. The loop's thread only."""
        for action in self.decisions.decide(lambda: self.scheduler.handle(event)):
            self.perform(action)
        self._log_turns()

    def note(self, event: Event, *, afterwards: Callable[[], None] | None = None) -> None:
        """Apply an event whose conclusions can wait for the end of this round.

        A thousand processes that attach at once then cost a few decisions instead of a thousand.
        `afterwards` runs once the conclusions are performed.
        """
        for action in self.decisions.note(lambda: self.scheduler.apply(event)):
            self.perform(action)
        self._unsettled = True
        if afterwards is not None:
            self._afterwards.append(afterwards)

    def _settle(self, now_ns: int) -> None:
        self._unsettled = False
        for action in self.decisions.decide(lambda: self.scheduler.settle(now_ns)):
            self.perform(action)
        self._log_turns()
        afterwards, self._afterwards = self._afterwards, []
        for errand in afterwards:
            self._attempt("what a message leads to", errand)

    def _log_turns(self) -> None:
        for turn_log in self.turn_logs:
            turn_log.look(self.scheduler, self.clock.now_ns())

    def perform(self, action: Action) -> None:
        """Carry one action out; a failure is logged and does not affect the actions after it."""
        self._acted = True
        try:
            self._carry_out(action)
        except Exception as error:
            self.failures.tell(type(action).__name__, error, self.clock.now_ns())
            for part in _each_process_of(action):
                self.perform(part)

    def _carry_out(self, action: Action) -> None:
        match action:
            case WakeAt(at_ns=at_ns):
                self._wake_at_ns = at_ns
            case ChargeGroup(process_ids=process_ids, group=group):
                for process_id in process_ids:
                    self.poller.regroup(process_id=process_id, group=group)
            case AnnounceJob():
                self._announce(action)
            case KeepTrials(gpu=gpu, trials=trials):
                self.remembered.keep_trials(gpu, trials)
            case CheckpointProcess() | SignalJob():
                self._reach_into(action)
            case FindPlan():
                self.plans.do(lambda: self._find_plan(action))
            case _:
                self.channels.perform(action)

    def _reach_into(self, action: CheckpointProcess | SignalJob) -> None:
        """Do what reaches processes by other ways than their channels."""
        if isinstance(action, SignalJob):
            self.signal(action)
        else:
            self.checkpoint(action)

    def _announce(self, action: AnnounceJob) -> None:
        change = Change(
            at_ns=self.last_round_ns, kind=action.kind, rule=action.rule, job_id=action.job_id
        )
        for watcher in list(self.watchers):
            self._attempt("a watcher of jobs", partial(watcher, change))

    def _find_plan(self, question: FindPlan) -> None:
        """Find plans. Runs on the worker's thread."""
        found: tuple[Valued, ...] = ()
        failure = ""
        try:
            found = tuple(alternatives(question.scene))
        except Exception as error:  # catch everything, so that the next question can come
            failure = f"{type(error).__name__}: {error}"
            if failure != self._failures.get(question.gpus):  # log once, not in every window
                log.exception("no plan was found, the one before stays", gpus=[*question.gpus])
        if failure:
            self._failures[question.gpus] = failure
        else:
            self._failures.pop(question.gpus, None)

        def answer() -> None:
            event = PlanFound(
                now_ns=self.clock.now_ns(),
                gpus=question.gpus,
                number=question.number,
                found=found,
                failure=failure,
            )
            self.handle(event)

        self.post(answer)

    def _wait_real(self) -> bool:
        timeout_ns = QUIET_ROUND_NS
        if self._wake_at_ns is not None:
            timeout_ns = min(timeout_ns, max(0, self._wake_at_ns - self.clock.now_ns()))
        if self._posted:
            timeout_ns = 0
        return self.poller.wait(timeout_ns=timeout_ns)

    def _wait_virtual(self) -> bool:
        next_ns = self._next_round_ns()
        while not self._stopping.is_set():
            only_looked, self._acted = not self._acted, False
            soon_ns = _after(self.clock.now_ns())
            # Set first: from here on, a thread that posts ends the wait.
            self._waits = looks = next_ns > soon_ns
            if looks and self._posted:
                next_ns, looks = soon_ns, False
            is_time = self.clock.wait_until_ns(next_ns, looks=looks, only_looked=only_looked)
            self._waits = False
            if self.attach is not None:
                self.attach.poll(timeout_s=0)
            # A real-time nap that brought nothing must leave no trace in virtual time.
            if not (is_time or self._posted or self._unsettled or self._acted):
                continue
            # Handle what ended the wait at the next grid time, however long ago the last round was,
            # so that a run is reproducible. This matters only where virtual time creeps in between.
            if self.clock.now_ns() >= next_ns or not (is_time or looks):
                break
            next_ns = min(next_ns, _after(self.clock.now_ns()))
        notable = self.poller.poll(now_ns=self.clock.now_ns())
        self._acted = self._acted or notable
        return notable

    def _next_round_ns(self) -> int:
        now_ns = self.clock.now_ns()
        next_ns, pause_ns = _after(now_ns), self.poller.pause_ns()
        if pause_ns > VIRTUAL_ROUND_NS:
            # Half way between two grid times: what others do on the grid is then seen at the same
            # time, whenever this daemon became idle.
            next_ns = _after(now_ns + pause_ns) - VIRTUAL_ROUND_NS // 2
        if self._wake_at_ns is not None:
            next_ns = min(next_ns, _after(self._wake_at_ns - 1))
        return max(next_ns, _after(now_ns))

    def _round(self, *, notable: bool) -> None:
        now_ns = self.clock.now_ns()
        self.last_round_ns = now_ns
        self._run_posted(until_ns=now_ns + POSTED_NS)
        if self._unsettled:
            self._settle(now_ns)
        due = self._wake_at_ns is not None and now_ns >= self._wake_at_ns
        if due:
            self._wake_at_ns = None
        watch = self.watchdog.is_due(now_ns)
        if notable or due or watch or self.energies.has_news or self.recent.is_due(now_ns):
            self._sample(now_ns)
        if watch:
            self._take_in("the watchdog", lambda: self.watchdog.look(self.scheduler, now_ns))

    def _run_posted(self, *, until_ns: int) -> None:
        """Run posted errands until then; the rest waits for the next round, so that jobs need not.

        On the virtual clock no time passes meanwhile.
        """
        for _ in range(len(self._posted)):
            self._attempt("something that was posted", self._posted.popleft())
            if self.clock.now_ns() >= until_ns:
                return

    def _attempt(self, what: str, errand: Callable[[], object]) -> None:
        """Run an errand; if it fails for one process, all others carry on."""
        self._acted = True
        try:
            errand()
        except Exception as error:
            self.failures.tell(what, error, self.clock.now_ns())

    def _take_in(self, what: str, look: Callable[[], Iterable[Event]]) -> None:
        """Handle the events that a look at the jobs returns."""

        def take() -> None:
            for told in look():
                self.handle(told)

        self._attempt(what, take)

    def _sample(self, now_ns: int) -> None:
        changed = tuple(map(usage_of, self.poller.changed()))
        for usage in changed:
            if process := self.scheduler.processes.get(usage.process_id):
                self.histories.note(process.job_id)
        self._attempt("structures", lambda: self.structures.look(changed, now_ns))
        if changed:
            self.handle(UsageSampled(now_ns=now_ns, samples=changed))
        else:
            self.handle(Ticked(now_ns=now_ns))
        self._look_at_telemetry(now_ns)
        # Energy is shared out by the GPU time charged so far.
        self._attempt("energies", lambda: self.energies.look(now_ns))
        if self.recent.is_due(now_ns):
            self._attempt("demands", lambda: self.demands.look(self.scheduler))
            self._attempt("shares", lambda: self.recent.look(self._totals_ns(), now_ns))
        if self.histories.is_due(now_ns):
            self._attempt("histories", lambda: self._look_at_memory(now_ns))

    def _look_at_memory(self, now_ns: int) -> None:
        jobs, finished = self.scheduler.jobs, self.scheduler.finished
        self.histories.look(jobs, (*jobs, *finished), now_ns)

    def _look_at_telemetry(self, now_ns: int) -> None:
        core = self.scheduler
        self._take_in("requests", lambda: self._served_requests(now_ns))
        self._take_in("bounds", lambda: self.bounds.look(core.to_classify(), now_ns))
        self._take_in("curves", lambda: self.curves.look(core.to_record(), now_ns))
        self._take_in("scalings", lambda: self.scalings.look(self._to_scale(), now_ns))

    def _served_requests(self, now_ns: int) -> list[RequestsServed]:
        jobs = self.scheduler.jobs.values()
        # The tuner reacts fast only if it hears of a miss before the next sample.
        misses_are_news = self.scheduler.options.tuner
        return list(requests.look(self.poller, jobs, now_ns, misses_are_news=misses_are_news))

    def _to_scale(self) -> list[Wanted]:
        options = self.scheduler.options
        return [
            Wanted(
                process=process,
                sms=given_sms(job, process.gpu, options),
                sm_count=options.sm_counts.get(process.gpu, 0),
                has_own_sms=partial(self._has_own_sms, job, process.gpu),
                serves=serves_bursts(job),
            )
            for job, process in self.scheduler.to_scale()
            if process.usage.iterations
        ]

    def _has_own_sms(self, job: Job, gpu: int) -> bool:
        """Looks at every other job, so call it only when a record has arrived."""
        return has_own_sms(job, self.scheduler.others_at_once(job), gpu)

    def _totals_ns(self) -> dict[object, int]:
        totals_ns: dict[object, int] = {}
        for job in self.scheduler.jobs.values():
            totals_ns["job", job.job_id] = job.gpu_ns
            for process in job.processes.values():
                usage = process.usage
                key = ("gpu", process.gpu)
                totals_ns[key] = totals_ns.get(key, 0) + usage.charged_ns
        return totals_ns


def _each_process_of(action: Action) -> list[Action]:
    """Split an action into one per process, so that one bad process does not block the others."""
    match action:
        case OpenGates() | CloseGates() | SetHonourPresence() | ChargeGroup():
            process_ids = action.process_ids
            alone = [replace(action, process_ids=(each,)) for each in process_ids]
            return [*alone] if len(alone) > 1 else []
        case _:
            return []

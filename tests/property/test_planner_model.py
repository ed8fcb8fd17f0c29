"""The planner against a model of its rule, while jobs come, go and change."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tandemd.core.planner.planner import BAND, BETTER, WINDOWS, Planner, best
from tandemd.core.planner.plans import Gpu, Scene, Worker
from tandemd.core.turns.interference import PRIOR, Interference

MS = 1_000_000
GROUPS, SMS = 6, 8
QUIET = Interference(weights=(0,) * (len(PRIOR) - 1) + (1,))


def worker(name, knee, ms, rate, slo_ms):
    def at(sms):
        return ms * MS * max(1.0, knee * SMS / sms)

    return Worker(name=name, solo_ns=ms * MS, at=at, rate=rate, slo_ns=slo_ms * MS)


class PlannerModel(RuleBasedStateMachine):
    """The model knows the plan, and how often in a row another was clearly better."""

    @initialize()
    def begin(self):
        self.planner, self.jobs, self.coming = Planner(), {}, 0
        self.plan, self.said, self.better = None, None, 0

    @precondition(lambda self: len(self.jobs) < 3)
    @rule(
        knee=st.integers(1, GROUPS),
        ms=st.integers(1, 20),
        rate=st.sampled_from([0.0, 0.0, 5.0, 30.0]),
        slo_ms=st.sampled_from([0, 10, 50]),
    )
    def come(self, **facts):
        self.coming += 1
        self.jobs[f"j{self.coming}"] = facts
        self.look()

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 2))
    def go(self, which):
        del self.jobs[list(self.jobs)[which % len(self.jobs)]]
        self.look()

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 2), knee=st.integers(1, GROUPS), ms=st.integers(1, 20))
    def change(self, which, knee, ms):
        """Measurements of a job change, which is no reason to look."""
        self.jobs[list(self.jobs)[which % len(self.jobs)]] |= {"knee": knee, "ms": ms}

    @rule(windows=st.integers(1, 2 * WINDOWS))
    def wait(self, windows):
        for _ in range(windows):
            self.look()

    @rule()
    def rest(self):
        """Nothing changes: at most one change of plan is still due, and then there is none."""
        for _ in range(WINDOWS):
            self.look()
        assert [self.look() for _ in range(3 * WINDOWS)] == [""] * (3 * WINDOWS)

    def look(self):
        workers = {name: worker(name, **facts) for name, facts in self.jobs.items()}
        scene = Scene(workers, Gpu(groups=GROUPS, sms_of_group=SMS), QUIET)
        expected = self.expected(scene)
        why = self.planner.look(scene)
        found = self.planner.current
        assert (found.plan if found else None) == self.plan
        assert bool(why) is expected
        if found is not None:
            assert found == scene.value(found.plan)
        return why

    def expected(self, scene):
        """Tell whether the plan changes now; if so, the model takes over the new one."""
        said = {name: facts["slo_ms"] for name, facts in self.jobs.items()}
        is_news, self.said = said != self.said, said
        if not self.jobs:
            self.plan, self.better = None, 0
            return False
        found = best(scene)
        if not is_news:
            now = scene.value(self.plan)
            balance = sum(self.gain(name, found, now) for name in self.jobs)
            gets_more = balance == 0 and found.progress > (1 + BETTER) * now.progress
            self.better = self.better + 1 if balance > 0 or gets_more else 0
            if self.better < WINDOWS:
                return False
        self.plan, self.better = found.plan, 0
        return True

    def gain(self, name, found, now):
        """1: an objective missed now will certainly be kept; -1: one that is kept will not."""
        slo_ns = self.jobs[name]["slo_ms"] * MS
        before_ns, after_ns = (each.forecasts[name].p99_ns for each in (now, found))
        if not slo_ns:
            return 0
        if before_ns > slo_ns:
            return int(after_ns <= (1 - BAND) * slo_ns)
        return -int(after_ns > max((1 - BAND) * slo_ns, before_ns))


TestPlannerModel = PlannerModel.TestCase
TestPlannerModel.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)

"""Fixed sequences of looks at one job, and the findings of a rule about them."""

from dataclasses import replace

from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.look import Look

MS, SECOND = 1_000_000, 1_000_000_000
MIB = 1 << 20


class Watched:
    """A job that is looked at once a second; `goes_on` says what each second adds."""

    def __init__(self, rule, **figures):
        self.rule = rule
        self.history = History(span_ns=rule.span_ns)
        self.look = Look(**{"now_ns": SECOND, "max_hold_ns": 20 * SECOND, **figures})
        self.history.add(self.look)

    def goes_on(self, seconds=1, *, now=None, **added):
        """Adds looks, each with `added` more than the last; the values in `now` hold from here."""
        for _ in range(seconds):
            grown = {name: getattr(self.look, name) + more for name, more in added.items()}
            self.look = replace(self.look, now_ns=self.look.now_ns + SECOND, **grown, **(now or {}))
            self.history.add(self.look)
        return self

    def find(self, *, standing=False):
        return self.rule.find(self.history, standing=standing)


def facts(finding):
    return dict(finding.facts)

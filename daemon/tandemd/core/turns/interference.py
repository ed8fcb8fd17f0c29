"""How much slower work gets beside other work: a linear model, fitted where it runs.

As gpu-let's (Choi et al., USENIX ATC 2022, section 4.4): the factor by which a job's iteration gets
longer is linear in what it and its neighbour need, each scaled by the part of the SMs that it has,
and at least 1. There the features are utilisations of L2 and DRAM, read from hardware counters.
Here they are what telemetry tells: the parts of its own GPU time in which a job's kernels fill the
SMs, move bytes, or copy (core.model.Mix).

gpu-let has two on a GPU. Here there may be more, and what each neighbour alone would cost adds up:
    factor - 1 = sum over neighbours of (what a pair's factor is - 1) + crowd * (neighbours - 1)
That is linear, too. So pairs and triples teach one model, what pairs have taught foretells triples
that nobody has tried yet, and what a crowd costs beyond the sum only triples tell.

The coefficients are found by ridge regression around `PRIOR`, from every measured factor, older
ones counting less, and those counting less that lie far from what was foretold (Huber's weights;
Robust Statistics, 1981, section 7.8): an iteration with a checkpoint in it, or a job that says what
it likes, is no reason to foretell the same of others. What keeps coming becomes the usual distance,
and counts in full. Until something was measured the prior is all there is, and `error` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tandemd.core.model import Bound, Mix

# The coefficient of each feature before anything was measured. The four of sm and memory are
# gpu-let's of L2 and DRAM on an RTX 2080 Ti, as published with its code: a place to start from.
# Two jobs that copy share one link: half of it each is twice the time. Of crowds nothing was
# published: they begin as the sum of pairs.
PRIOR = (
    0.1129,  # sm of its own
    0.7160,  # sm beside it
    0.3549,  # memory of its own
    0.0882,  # memory beside it
    1.0,  # copies at once
    0.0,  # neighbours but the first
    0.8954,  # the constant
)
RIDGE = 0.1  # the prior counts as much as so much of a measurement
FORGET = 0.995  # an older measurement counts so much of the next
REMEMBERED = 64  # errors
KNOWN = 8  # of them tell what is far from what was foretold
FAR = 1.345  # scales: of errors that are normal all but one in six count in full (Huber)
LEAST_SCALE = 0.1  # of the error of a factor
LEAST_FACTOR = 0.8  # who gets faster than that beside others does so for another reason
_NORMAL = 1.4826  # the standard deviation of what is normal, over its median distance
_RANGE = range(len(PRIOR))
MOST_FACTOR = 16.0  # beyond, it is something else than interference


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a job needs while it runs alone, each 0..1."""

    sm: float = 0.0  # of its GPU time: kernels that fill the SMs
    memory: float = 0.0  # kernels bound by memory bandwidth
    copy: float = 0.0  # copies
    busy: float = 1.0  # of all time: has work on the GPU


def features_of(mix: Mix, busy: float = 1.0) -> Features:
    """From what its work was bound by. Work that moves bytes fills the SMs, too."""
    shares = mix.shares
    return Features(
        sm=min(1.0, shares[Bound.COMPUTE] + shares[Bound.MEMORY]),
        memory=shares[Bound.MEMORY],
        copy=shares[Bound.COPY],
        busy=min(1.0, max(0.0, busy)),
    )


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job, and the part of the SMs that it may use, 0..1."""

    features: Features
    part: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A factor that was measured: the time of an iteration beside `others` over that alone."""

    own: Neighbour
    others: tuple[Neighbour, ...]
    factor: float


def terms(own: Neighbour, others: Sequence[Neighbour]) -> tuple[float, ...]:
    """The features of a job and its neighbours, one at least, added up over these.

    The last is that of the constant: how many there are, but for the first only in so far as they
    are busy. Whoever is idle half of the time is half there.
    """
    mine = own.features
    sm = memory = copy = there = most = 0.0
    for other in others:
        theirs = other.features
        sm += theirs.sm * other.part * theirs.busy
        memory += theirs.memory * other.part * theirs.busy
        copy += theirs.copy * theirs.busy
        there += theirs.busy
        most = max(most, theirs.busy)
    count = 1 + there - most
    return (
        mine.sm * own.part * count,
        sm,
        mine.memory * own.part * count,
        memory,
        mine.copy * copy,
        count - 1,
        count,
    )


@dataclass(slots=True)
class Interference:
    """The model of one GPU. Belongs to one thread."""

    weights: tuple[float, ...] = PRIOR
    count: int = 0  # measurements so far
    recalled: int = 0  # of these, from before the daemon started
    _matrix: list[list[float]] = field(
        default_factory=lambda: [[RIDGE * (i == j) for j in range(len(PRIOR))] for i in _RANGE]
    )
    _vector: list[float] = field(default_factory=lambda: [RIDGE * weight for weight in PRIOR])
    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))  # relative
    _distances: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def factor(self, own: Neighbour, others: Sequence[Neighbour]) -> float:
        """How many times as long an iteration takes beside `others` as alone, 1 at least.

        `others`: who runs at the same time. 1 where there are none.
        """
        if not others:
            return 1.0
        row = terms(own, others)
        return max(1.0, _dot(self.weights, row) - (row[-1] - 1))

    def learn(self, trial: Trial) -> bool:
        """Take in what was measured; False: it cannot be interference, and teaches nothing."""
        if not _teaches(trial):
            return False
        foretold = self.factor(trial.own, trial.others)
        self._errors.append(abs(foretold - trial.factor) / trial.factor)
        self._add(trial, self._weight(abs(foretold - trial.factor)))
        self.weights = solve(self._matrix, self._vector)
        return True

    def _weight(self, distance: float) -> float:
        """Of a measurement that far from what was foretold, 0..1."""
        self._distances.append(distance)
        if len(self._distances) < KNOWN:
            return 1.0
        far = FAR * max(LEAST_SCALE, _NORMAL * median(self._distances))
        return min(1.0, far / distance) if distance else 1.0

    def _add(self, trial: Trial, weight: float) -> None:
        row = terms(trial.own, trial.others)
        total = trial.factor + row[-1] - 1  # of the factors of pairs, and the crowd
        kept = 1 - (1 - FORGET) * weight  # what counts little makes nothing else old
        for i in _RANGE:
            # The prior stays what it is: only what was measured grows old.
            prior = RIDGE * PRIOR[i]
            self._vector[i] = kept * (self._vector[i] - prior) + prior + weight * row[i] * total
            for j in _RANGE:
                base = RIDGE * (i == j)
                learnt = weight * row[i] * row[j]
                self._matrix[i][j] = kept * (self._matrix[i][j] - base) + base + learnt
        self.count += 1

    def recall(self, trials: Iterable[Trial]) -> None:
        """Take in what was measured before the daemon started, the oldest first."""
        self.recalled += sum(map(self.learn, trials))

    def frozen(self) -> Interference:
        """The same, which learns no more: for other threads."""
        return Interference(weights=self.weights, count=self.count, recalled=self.recalled)

    @property
    def error(self) -> float | None:
        """Mean of |predicted - measured| / measured, each predicted before it was learnt."""
        return sum(self._errors) / len(self._errors) if self._errors else None


def _teaches(trial: Trial) -> bool:
    return LEAST_FACTOR <= trial.factor <= MOST_FACTOR and bool(trial.others)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def solve(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> tuple[float, ...]:
    """The solution of `matrix` x = `vector` by elimination; the matrix is positive definite.

    Such a matrix needs no pivoting (Golub and Van Loan, Matrix Computations, section 4.2).
    """
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    size = len(rows)
    for i, row in enumerate(rows):
        for below in rows[i + 1 :]:
            ratio = below[i] / row[i]
            for j in range(i, size + 1):
                below[j] -= ratio * row[j]
    found = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (rows[i][size] - known) / rows[i][i]
    return tuple(found)

"""How much slower work gets beside other work: a linear model, fitted on the GPU where it runs.

As in gpu-let (Choi et al., USENIX ATC 2022, section 4.4), the factor by which a job's iteration
gets longer is at least 1 and linear in what the job and its neighbour need, each scaled by its part
of the SMs. gpu-let's features are utilisations of L2 and DRAM, read from hardware counters. The
features here come from telemetry: the parts of a job's own GPU time in which its kernels fill the
SMs, move bytes, or copy (core.model.Mix).

gpu-let puts two jobs on a GPU. Here there may be more, and the costs of single neighbours add up:
    factor - 1 = sum over neighbours of (what a pair's factor is - 1) + crowd * (neighbours - 1)
This is linear as well. So pairs and triples train one model: pairs predict triples that nobody has
tried yet, and only triples show what a crowd costs beyond the sum.

The coefficients come from ridge regression around `PRIOR` over all measured factors. Older
measurements count less, and so do those far from their prediction (Huber's weights; Robust
Statistics, 1981, section 7.8): an iteration that writes a checkpoint, or a job that reports what it
likes, should not change predictions for others. A deviation that keeps coming becomes the usual one
and then counts in full. Before the first measurement only the prior counts, and `error` is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tandemd.core.model import Bound, Mix

# Coefficients before the first measurement. Those of sm and memory are gpu-let's for L2 and DRAM on
# an RTX 2080 Ti, as published with its code: a place to start from. Two jobs that copy share one
# link: half of it each is twice the time. Nothing was published on crowds: they begin as the sum of
# pairs.
PRIOR = (
    0.1129,  # the job's own sm
    0.7160,  # sm of its neighbours
    0.3549,  # the job's own memory
    0.0882,  # memory of its neighbours
    1.0,  # simultaneous copies
    0.0,  # neighbours beyond the first
    0.8954,  # the constant
)
RIDGE = 0.1  # the prior counts as much as this fraction of a measurement
FORGET = 0.995  # weight of a measurement relative to the next one
REMEMBERED = 64  # how many errors to keep
KNOWN = 8  # how many are needed to tell what is far from a prediction
FAR = 1.345  # in scales: of normal errors, all but about one in six count in full (Huber)
LEAST_SCALE = 0.1  # least scale of the error of a factor
LEAST_FACTOR = 0.8  # a job that is faster than this beside others has another reason
_NORMAL = 1.4826  # standard deviation of a normal distribution over its median distance
_RANGE = range(len(PRIOR))
MOST_FACTOR = 16.0  # a larger factor is not interference


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a job needs while it runs alone; each is 0..1."""

    sm: float = 0.0  # part of its GPU time in kernels that fill the SMs
    memory: float = 0.0  # part in kernels bound by memory bandwidth
    copy: float = 0.0  # part in copies
    busy: float = 1.0  # part of all time in which it has work on the GPU


def features_of(mix: Mix, busy: float = 1.0) -> Features:
    """Derive features from what bounds the work. Work that moves bytes fills the SMs as well."""
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
    """A measured factor: iteration time beside `others` over iteration time alone."""

    own: Neighbour
    others: tuple[Neighbour, ...]
    factor: float


def terms(own: Neighbour, others: Sequence[Neighbour]) -> tuple[float, ...]:
    """Features of a job and its neighbours (at least one), summed over the neighbours.

    The last term belongs to the constant: the number of neighbours, with all but one weighted by
    how busy they are. A neighbour that is idle half of the time counts half.
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
    recalled: int = 0  # those of them from before the daemon started
    _matrix: list[list[float]] = field(
        default_factory=lambda: [[RIDGE * (i == j) for j in range(len(PRIOR))] for i in _RANGE]
    )
    _vector: list[float] = field(default_factory=lambda: [RIDGE * weight for weight in PRIOR])
    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))  # relative
    _distances: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def factor(self, own: Neighbour, others: Sequence[Neighbour]) -> float:
        """Predict how many times as long an iteration takes beside `others` as alone, at least 1.

        `others`: the jobs that run at the same time. The factor is 1 if there are none.
        """
        if not others:
            return 1.0
        row = terms(own, others)
        return max(1.0, _dot(self.weights, row) - (row[-1] - 1))

    def learn(self, trial: Trial) -> bool:
        """Learn from a measurement; False: it cannot be interference, so nothing was learnt."""
        if not _teaches(trial):
            return False
        foretold = self.factor(trial.own, trial.others)
        self._errors.append(abs(foretold - trial.factor) / trial.factor)
        self._add(trial, self._weight(abs(foretold - trial.factor)))
        self.weights = solve(self._matrix, self._vector)
        return True

    def _weight(self, distance: float) -> float:
        """Weight of a measurement by its distance from the prediction, 0..1."""
        self._distances.append(distance)
        if len(self._distances) < KNOWN:
            return 1.0
        far = FAR * max(LEAST_SCALE, _NORMAL * median(self._distances))
        return min(1.0, far / distance) if distance else 1.0

    def _add(self, trial: Trial, weight: float) -> None:
        row = terms(trial.own, trial.others)
        total = trial.factor + row[-1] - 1  # sum of the pairs' factors, and the crowd
        kept = 1 - (1 - FORGET) * weight  # a measurement of low weight ages the others little
        for i in _RANGE:
            # The prior does not age, only measurements do.
            prior = RIDGE * PRIOR[i]
            self._vector[i] = kept * (self._vector[i] - prior) + prior + weight * row[i] * total
            for j in _RANGE:
                base = RIDGE * (i == j)
                learnt = weight * row[i] * row[j]
                self._matrix[i][j] = kept * (self._matrix[i][j] - base) + base + learnt
        self.count += 1

    def recall(self, trials: Iterable[Trial]) -> None:
        """Learn from measurements before the daemon started, oldest first."""
        self.recalled += sum(map(self.learn, trials))

    def frozen(self) -> Interference:
        """Return a copy that learns no more, for other threads."""
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
    """Solve `matrix` x = `vector` by elimination; the matrix is positive definite.

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

"""What a job asks of the SMs, and what that means where kernels of two processes never overlap.

There, in mode `time`, `--sm` is a share of time. A job that asks for one is owed that part of the
GPU time of those it takes turns with, whenever it has work; jobs that ask for none share the rest
by the weight of their class. Both become weights of fair queueing: nobody is stopped while the GPU
is idle, and what one job does not use goes to the others in proportion. Shares that add up to more
than there is are scaled down alike. While a job has the turn, all SMs are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.model import Group, Job, JobSpec, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.substrate import SUBSTRATES, divides_space

LEAST_REST = 0.01  # left to jobs that ask for none, even if `min_share` is 0
MODES = ("time", "mps", "mps+green", "mig")  # how jobs can be kept apart
_CONFIGURE = 'an admin sets gpu."*".mode'
_CUT = "an admin cuts it by `tandem partition apply --mig`"
_REMEDIES = {mode: _CUT if mode == "mig" else _CONFIGURE for mode in MODES}


def said(spec: JobSpec) -> str:
    """Return what was asked for, for people; empty: nothing was."""
    if spec.sm_count:
        return f"{spec.sm_count} SMs"
    return f"{spec.sm_percent}%" if spec.sm_percent else ""


def said_share(spec: JobSpec, gpus: Iterable[int], options: Options) -> float:
    """Return the same as a fraction of the smallest of these GPUs, 0..1; 0 = nothing was asked."""
    counts = [count for gpu in gpus if (count := options.sm_counts.get(gpu, 0))]
    if spec.sm_count and counts:
        return min(1.0, spec.sm_count / min(counts))
    return spec.sm_percent / 100


def share_of(group: Group, options: Options) -> float:
    """Return what its jobs ask for together, 0..1, if that is a share of time; 0 = nothing.

    If they ask for nothing, it is what the tuner gives them.
    """
    if divides_space(group.gpus, options):
        return 0.0
    return min(1.0, _asked(group, options) or group.tuned_share)


def most_promised(options: Options) -> float:
    """Return the most that can be promised of the time beside a job that asks for none."""
    return 1 - max(LEAST_REST, options.min_share)


def why_no_share(group: Group, policy: Policy, options: Options) -> str | None:
    """Return why a share of time has no effect on a group now; None: it has one."""
    if why := _without_weight(policy, options):
        return f"under {options.policy} {why}"
    if policy.always_open(group):
        return f"under {options.policy} its class takes no turns: it is never held"
    if group.undrainable:
        return "it is undrainable, so it takes no turns"
    if group.is_closed:
        return "it is held, so it takes no turns"
    return None


def _without_weight(policy: Policy, options: Options) -> str:
    """Return what turns go by if weight has no effect on them; empty: it has one."""
    if policy.quantum_ns(options) is None:
        return "a turn does not end while there is work"
    if policy.by_pieces:
        return "a turn is an iteration or a request, however long that takes"
    return "" if policy.by_weight else "turns do not depend on how much each job has had"


def _asked(group: Group, options: Options) -> float:
    """Return what its jobs ask for together, which may be more than there is."""
    specs = [job.spec for job in group.jobs.values()]
    if not any(map(said, specs)) or divides_space(group.gpus, options):
        return 0.0
    return sum(said_share(spec, group.gpus, options) for spec in specs)


def owed_share(job: Job, group: Group, options: Options) -> float:
    """Return the share a job's own `--sm` gives it of those it takes turns with; 0 = nothing."""
    asked = _asked(group, options)
    if not asked:
        return 0.0
    return said_share(job.spec, group.gpus, options) * group.owed_share / asked


def go_first(group: Group, island: Iterable[Group], policy: Policy) -> list[Job]:
    """Return the island's jobs that get the GPU before a group and those it takes turns with."""
    return [
        job
        for other in island
        if policy.always_open(other) or policy.tier(other) < policy.tier(group)
        for job in other.jobs.values()
    ]


def weigh(members: Iterable[Group], policy: Policy, options: Options) -> None:
    """Set the weight of every group of an island in fair queueing, and what each is owed."""
    groups, weights, anybody = list(members), dict(options.weights), False
    for group in groups:
        group.weight, group.owed_share = weights[group.job_class], 0.0
        for job in group.jobs.values():
            anybody |= bool(job.spec.sm_percent or job.spec.sm_count or group.tuned_share)
    if not anybody or _without_weight(policy, options):
        # Turns do not end on account of a share.
        return
    tiers: dict[int, list[Group]] = {}
    for group in groups:
        if not (group.is_closed or group.undrainable or policy.always_open(group)):
            tiers.setdefault(policy.tier(group), []).append(group)
    for tier in tiers.values():
        _share_out(tier, options)


def _share_out(groups: list[Group], options: Options) -> None:
    """Divide one tier; the mean weight stays about the same, because virtual times go on."""
    shares = {group.key: share for group in groups if (share := share_of(group, options))}
    if not shares:
        return
    silent = sum(group.weight for group in groups if group.key not in shares)
    room = most_promised(options) if silent else 1.0
    asked = sum(shares.values())
    scale = min(1.0, room / asked)
    rest = 1 - scale * asked
    whole = silent / rest if silent else sum(group.weight for group in groups) / asked
    for group in groups:
        if group.key in shares:
            group.owed_share = scale * shares[group.key]
            group.weight = whole * group.owed_share
        else:
            group.owed_share = group.weight / whole


def variables(spec: JobSpec, gpus: frozenset[int], options: Options) -> dict[str, str]:
    """Return the environment variables it needs on these GPUs, or on all if none is named."""
    meant = gpus or frozenset(options.sm_counts)
    smallest = min((options.sm_counts.get(gpu, 0) for gpu in meant), default=0)
    return SUBSTRATES[options.mode_of(meant)].variables(spec, smallest)


def unfit(spec: JobSpec, gpus: frozenset[int], options: Options) -> str | None:
    """Return why no GPU of `gpus` (of all, if empty) has what is asked for; None: one has."""
    meant = sorted(gpus or options.sm_counts)
    if not meant:
        return None  # nothing can be said if a machine's GPUs are not known
    return never_fits(spec, gpus, options) or _other_mode(spec, meant, options)


def never_fits(spec: JobSpec, gpus: frozenset[int], options: Options) -> str | None:
    """Like `unfit`, but only reasons that hold in whatever mode these GPUs may be."""
    counts = {gpu: options.sm_counts.get(gpu, 0) for gpu in sorted(gpus or options.sm_counts)}
    if not counts or not all(counts.values()):
        return None
    gpu = max(counts, key=lambda one: counts[one])
    if spec.sm_count <= counts[gpu]:
        return None
    return (
        f"it asks for {spec.sm_count} SMs, but gpu {options.name_of(gpu)} has {counts[gpu]}; "
        "ask for fewer, or for a share such as 30%"
    )


def not_yet(spec: JobSpec, gpus: frozenset[int], options: Options) -> str:
    """Return why a job has to wait for a proof; empty: it need not.

    What it asks of the SMs becomes either a percentage, fixed when the job starts, or a set.
    """
    if not said(spec) and not spec.isolation.startswith("mps"):
        return ""
    names = ", ".join(map(options.name_of, sorted(options.being_proved(gpus))))
    return f"mode mps+green is being proved on gpu {names}" if names else ""


def _other_mode(spec: JobSpec, gpus: list[int], options: Options) -> str | None:
    modes = {gpu: options.mode_of([gpu]) for gpu in gpus}
    if not spec.isolation or spec.isolation in modes.values():
        return None
    gpu = gpus[0]
    way_out = f"; {_REMEDIES[spec.isolation]}, or drop --isolation"
    if hindrance := options.hindrance(gpu, spec.isolation):
        way_out = f": {hindrance}; drop --isolation, or see `tandem doctor`"
    return (
        f"it asks for isolation {spec.isolation}, but gpu {options.name_of(gpu)} is in mode "
        f"{modes[gpu]}{way_out}"
    )

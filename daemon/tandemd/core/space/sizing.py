"""How many SMs each job of a GPU gets, from how it scales and from the limit it has to keep.

The rule is gpu-let's (Choi et al., USENIX ATC 2022): a job gets the fewer of its knee, p_eff, and
of what its limit requires at its rate, p_req, in the smallest number of equal parts that holds
that. A job that asks for a number gets that number. Jobs of which nothing is known share what is
left, at least one part. If all that is more than there is, jobs of class latency come first, then
jobs that ask for a number; jobs of equal standing are scaled down alike. What is left goes to jobs
of class latency whose limit requires more than their knee, because our jobs cannot be on two GPUs;
then to jobs of which nothing is known; and if there are none, to those below class latency that
gain most speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandemd.core.model import JobClass
from tandemd.core.space.scaling import Curve
from tandemd.core.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is known of a job that wants SMs."""

    name: str
    job_class: JobClass = JobClass.NORMAL
    asked_sms: int = 0  # 0 = it asks for none
    asked: str = ""  # the same in its own words
    curve: Curve | None = None
    doubt: str = ""  # why there is no curve, or none of use
    slo_ns: int = 0  # the most an iteration may take; 0 = it has no limit
    rate: float = 0.0  # iterations a second that are asked of it; 0 = not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a job gets."""

    name: str
    parts: int  # 0 = a share of what is left, together with others that have 0
    required_sms: int = 0  # p_req; 0 = it has no limit, or no number keeps it
    why: str = ""  # for people


def sizes(claims: Sequence[Claim], parts: int, part_sms: int) -> list[Size]:
    """Return the size of each job, in the order of the claims.

    Args:
        claims: of all jobs on the GPU.
        parts: equal parts that the GPU can be divided into.
        part_sms: SMs of each part.
    """
    wanted = [_wanted(claim, parts, part_sms) for claim in claims]
    rest = any(size.parts == 0 for size in wanted)
    found = _fitted(claims, wanted, parts - rest)
    found = _with_limits_kept(claims, found, parts - rest, part_sms)
    return found if rest else _with_the_rest(claims, found, parts, part_sms)


def _wanted(claim: Claim, parts: int, part_sms: int) -> Size:
    curve = claim.curve
    if claim.asked_sms:
        held = min(parts, -(-claim.asked_sms // part_sms))
        return Size(
            name=claim.name, parts=held, why=f"it asks for {claim.asked or claim.asked_sms}"
        )
    if curve is None:
        return Size(name=claim.name, parts=0, why=claim.doubt)
    efficient = curve.knee()
    has_use = efficient >= curve.sm_counts[-1]
    beyond = f"beyond {counted(efficient, 'SM')} each SM gains less"
    why = "it has use for all SMs" if has_use else beyond
    required = curve.smallest_for(claim.slo_ns, claim.rate) if claim.slo_ns else None
    if required is not None:
        why += f", and with {required} it keeps its limit"
    elif claim.slo_ns:
        why += ", and no number of SMs keeps its limit"
    return Size(
        name=claim.name,
        parts=min(parts, -(-min(efficient, required or efficient) // part_sms)),
        required_sms=required or 0,
        why=why,
    )


def _fitted(claims: Sequence[Claim], wanted: Sequence[Size], parts: int) -> list[Size]:
    """Cut sizes to what there is: latency first, then jobs that ask; equals are cut alike."""
    found, left = list(wanted), parts
    for tier in sorted({_tier(claim) for claim in claims}):
        places = [i for i, c in enumerate(claims) if _tier(c) == tier and wanted[i].parts]
        whole = {i: wanted[i].parts for i in places}
        for i, size in _scaled(whole, left).items():
            left -= size
            if size < whole[i]:
                why = f"{wanted[i].why}; together the jobs want too many, so it gets fewer"
                found[i] = replace(wanted[i], parts=size, why=why)
    return found


def _tier(claim: Claim) -> tuple[bool, bool]:
    return claim.job_class is not JobClass.LATENCY, not claim.asked_sms


def _scaled(whole: Mapping[int, int], room: int) -> dict[int, int]:
    """Scale the sizes down in proportion, in whole parts, if they exceed the room.

    Each gets at least one part while there are some.
    """
    total = sum(whole.values())
    if total <= room:
        return dict(whole)
    given = dict.fromkeys(list(whole)[:room], 1)
    given |= dict.fromkeys(list(whole)[room:], 0)
    while sum(given.values()) < room:
        # Next comes the job farthest below its share (Webster's method of apportionment, which
        # favours neither those that want much nor those that want little).
        neediest = max(whole, key=lambda i: (whole[i] / (given[i] + 0.5), -i))
        given[neediest] += 1
    return given


def _with_limits_kept(
    claims: Sequence[Claim], found: Sequence[Size], parts: int, part_sms: int
) -> list[Size]:
    out = list(found)
    left = parts - sum(size.parts for size in out)
    for i, claim in enumerate(claims):
        needed = -(-out[i].required_sms // part_sms)
        if claim.job_class is JobClass.LATENCY and out[i].parts and needed > out[i].parts:
            more = min(left, needed - out[i].parts)
            left -= more
            why = f"{out[i].why}; it gets {more} parts more for its limit"
            out[i] = replace(out[i], parts=out[i].parts + more, why=why if more else out[i].why)
    return out


def _with_the_rest(
    claims: Sequence[Claim], found: Sequence[Size], parts: int, part_sms: int
) -> list[Size]:
    out = list(found)
    for _ in range(parts - sum(size.parts for size in out)):
        gains = {
            i: _gain(claim, out[i].parts * part_sms, part_sms)
            for i, claim in enumerate(claims)
            if claim.job_class is not JobClass.LATENCY and not claim.asked_sms and out[i].parts
        }
        best = max(gains, key=lambda i: (gains[i], -i), default=None)
        if best is None or gains[best] <= 0:
            break
        out[best] = replace(out[best], parts=out[best].parts + 1)
    return [_with_more(size, found[i].parts, part_sms) for i, size in enumerate(out)]


def _with_more(size: Size, before: int, part_sms: int) -> Size:
    """Say why a job has more than its knee or its limit calls for."""
    more = (size.parts - before) * part_sms
    return replace(size, why=f"{size.why}; {more} more are left over") if more else size


def _gain(claim: Claim, sms: int, part_sms: int) -> float:
    """Return how much faster it is with one more part, as a fraction of its speed."""
    if claim.curve is None:
        return 0.0
    return claim.curve.at(sms) / claim.curve.at(sms + part_sms) - 1

"""Marks, outside the shim and with a fake one."""

import asyncio
import math
import re
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager
from fractions import Fraction
from pathlib import Path

import pytest

import tandem
from tandem import _marks, _paths

HEADER = (Path(__file__).parents[3] / "shim/tandem_mark.h").read_text()


class FakeShim:
    def __init__(self):
        self.marks = []

    def tandem_mark_v1(self, kind, id_, value):
        self.marks.append((kind, id_, value))
        return 0

    def tandem_is_managed_v1(self):
        return 1


@pytest.fixture
def shim(monkeypatch):
    fake = FakeShim()
    monkeypatch.setattr(_marks, "_shim", lambda: fake)
    return fake


def test_kinds_are_those_of_the_header():
    kinds = dict(re.findall(r"TANDEM_MARK_(\w+) = (\d+)", HEADER))

    assert len(kinds) == 6
    assert {name: getattr(_marks, name) for name in kinds} == {
        name: int(number) for name, number in kinds.items()
    }


def test_outside_the_shim_nothing_happens():
    @tandem.slo(p99_ms=50)
    def handle(x):
        return x + 1

    tandem.step()
    with tandem.phase("prefill"), tandem.critical(max_ms=5):
        assert handle(1) == 2
    assert tandem.is_managed() is False


def test_the_shim_is_found_by_its_exported_function():
    code = "import tandem; from tandem import _marks; tandem.step(3); print(_marks._shim() is None)"

    def found_none(**more):
        environ = {"PYTHONPATH": str(_paths.SHIM.parent.parent), **more}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert found_none() == "True"
    assert found_none(LD_PRELOAD=str(_paths.SHIM), TANDEM_SOCKET="/nonexistent") == "False"


def test_is_managed_is_what_the_shim_says(shim):
    assert tandem.is_managed() is True


def test_a_step_carries_its_number(shim):
    tandem.step()
    tandem.step(41)

    assert shim.marks == [(1, 0, 0), (1, 41, 0)]


def test_a_phase_begins_and_ends_with_the_hash_of_its_name(shim):
    with tandem.phase("foobar"):
        shim.marks.append("inside")

    hash_of_foobar = 0x85944171F73967E8  # published FNV-1a test vector
    assert shim.marks == [(2, hash_of_foobar, 0), "inside", (3, hash_of_foobar, 0)]


def test_a_phase_ends_when_its_block_raises(shim):
    with pytest.raises(KeyError), tandem.phase("x"):
        raise KeyError

    assert [kind for kind, _, _ in shim.marks] == [2, 3]


def test_a_critical_section_is_bounded_in_nanoseconds(shim):
    with tandem.critical(max_ms=0.5):
        pass

    assert shim.marks == [(4, 0, 500_000), (4, 0, 0)]


@pytest.mark.parametrize(("max_ms", "nanoseconds"), [(1e-9, 1), (1e300, 2**64 - 1)])
def test_the_shortest_and_longest_wish_is_one(max_ms, nanoseconds, shim):
    with tandem.critical(max_ms=max_ms):
        assert shim.marks == [(4, 0, nanoseconds)]


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_bounds_must_be_positive(value):
    with pytest.raises(ValueError, match="must be positive"), tandem.critical(max_ms=value):
        pass
    with pytest.raises(ValueError, match="must be positive"):
        tandem.slo(p99_ms=value)


@pytest.mark.parametrize(
    "mark",
    [
        lambda: tandem.step("x"),
        lambda: tandem.step(1.5),
        lambda: tandem.phase(3),
        lambda: tandem.critical(max_ms="x"),
        lambda: tandem.slo(p99_ms=None),
    ],
)
@pytest.mark.parametrize("is_managed", [False, True])
def test_what_is_of_another_type_is_refused_with_and_without_the_shim(request, mark, is_managed):
    if is_managed:
        request.getfixturevalue("shim")

    with pytest.raises(TypeError):
        mark()


def test_requests_are_numbered_and_may_overlap(shim):
    @tandem.slo(p99_ms=50)
    def handle(depth):
        return handle(depth - 1) if depth else "done"

    assert handle(1) == "done"

    (_, outer, _), (_, inner, _), *ends = shim.marks
    assert [kind for kind, _, _ in shim.marks] == [5, 5, 6, 6]
    assert outer != inner
    assert ends == [(6, inner, 0), (6, outer, 0)]


@pytest.mark.parametrize(
    ("p99_ms", "nanoseconds"),
    [(50, 50_000_000), (Fraction(1, 4), 250_000), (1e-9, 1), (3.2e12, 0), (math.inf, 0)],
)
def test_a_request_says_what_it_is_to_take_whatever_handles_it(p99_ms, nanoseconds, shim):
    mark = tandem.slo(p99_ms=p99_ms)

    @mark
    def plain():
        pass

    @mark
    def generated():
        yield

    @mark
    async def awaited():
        pass

    @mark
    async def parts():
        yield

    async def take_parts():
        return [part async for part in parts()]

    plain()
    list(generated())
    asyncio.run(awaited())
    asyncio.run(take_parts())

    assert [value for kind, _, value in shim.marks if kind == _marks.REQUEST_BEGIN] == (
        [nanoseconds] * 4
    )
    assert not any(value for kind, _, value in shim.marks if kind == _marks.REQUEST_END)


def test_a_request_that_is_answered_in_parts_lasts_until_the_last(shim):
    @tandem.slo(p99_ms=50)
    def handle():
        got = yield 1
        yield got
        return 3

    parts = handle()
    assert not shim.marks
    assert (next(parts), parts.send(2)) == (1, 2)
    assert [call[0] for call in shim.marks] == [_marks.REQUEST_BEGIN]
    with pytest.raises(StopIteration) as end:
        next(parts)
    assert end.value.value == 3
    assert [call[0] for call in shim.marks] == [_marks.REQUEST_BEGIN, _marks.REQUEST_END]


@pytest.mark.parametrize("how_many", [1, 2])
def test_an_async_one_does_too_and_when_nobody_wants_the_rest(how_many, shim):
    ended = []

    @tandem.slo(p99_ms=50)
    async def handle():
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    async def body():
        async with aclosing(handle()) as parts:
            got = [await anext(parts) for _ in range(how_many)]
            assert [call[0] for call in shim.marks] == [_marks.REQUEST_BEGIN]
            return got

    assert asyncio.run(body()) == [1, 2][:how_many]
    assert ended
    assert [call[0] for call in shim.marks] == [_marks.REQUEST_BEGIN, _marks.REQUEST_END]


def test_a_marked_async_generator_is_sent_to_and_thrown_at_as_before(shim):
    heard = []

    @asynccontextmanager
    @tandem.slo(p99_ms=50)
    async def session():
        try:
            heard.append((yield "session"))
        except KeyError:
            heard.append("rolled back")

    @tandem.slo(p99_ms=50)
    async def echo():
        heard.append((yield 1))
        yield 2

    async def body():
        async with session() as given:
            assert given == "session"
            raise KeyError
        async with session():
            pass
        async with aclosing(echo()) as parts:
            assert (await anext(parts), await parts.asend("sent")) == (1, 2)
            with pytest.raises(ZeroDivisionError):
                await parts.athrow(ZeroDivisionError())

    asyncio.run(body())

    assert heard == ["rolled back", None, "sent"]
    assert [call[0] for call in shim.marks] == [_marks.REQUEST_BEGIN, _marks.REQUEST_END] * 3


def test_an_async_request_lasts_until_it_is_awaited(shim):
    @tandem.slo(p99_ms=50)
    async def handle():
        await asyncio.sleep(0)
        shim.marks.append("handled")
        return 7

    assert asyncio.run(handle()) == 7
    assert [m if m == "handled" else m[0] for m in shim.marks] == [5, "handled", 6]


def test_a_decorated_function_keeps_its_name():
    @tandem.slo(p99_ms=50)
    def handle():
        """Serve."""

    assert (handle.__name__, handle.__doc__) == ("handle", "Serve.")

"""Whichever call of a generated program fails, no two streams touch the same bytes at once."""

import random
import re
from collections import defaultdict

import pytest
from proof_generator import build, random_codes

NON_BLOCKING = "1"  # CU_STREAM_NON_BLOCKING
BUFFER = re.compile(r"\bd\d+\b")
SHARED = re.compile(r"cuStream(Write|Wait)Value")  # the means by which one stream waits for another


def streams_not_waited_for(steps):
    """Return the streams that the legacy stream does not wait for."""
    return {
        step.arguments[0].lstrip("&")
        for step in steps
        if step.symbol.startswith("cuStreamCreate") and step.arguments[1] == NON_BLOCKING
    }


def users(steps):
    """Return name of a buffer -> streams that use it without relying on an order."""
    found = defaultdict(set)
    for step in steps:
        if step.stream and not step.relies_on_order and not SHARED.match(step.symbol):
            for name in BUFFER.findall(" ".join(step.arguments)):
                found[name].add(step.stream)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_buffer_has_one_name_in_each_stream(seed):
    draw = random.Random(seed)
    for _ in range(60):
        codes, tidily = random_codes(draw)
        steps = build(codes, tidily=tidily).steps
        apart = streams_not_waited_for(steps)

        for name, streams in users(steps).items():
            assert len(streams - {"1"}) <= 1, (name, streams)
            assert "1" not in streams or not streams & apart, (name, streams)


def test_a_word_that_a_stream_waits_for_is_written_again_only_once_it_has_been_seen():
    wait = ("wait_for_value_of_another_stream", b"\1")  # the first stream waits for the second
    second = [("create_stream", b""), ("allocate", b"\1")]
    steps = build([*second, wait, wait]).steps

    chain = [step for step in steps if step.verb in ("order", "name")][:5]

    assert [(step.symbol, step.stream) for step in chain] == [
        ("cuStreamWaitValue32_v2", "s1"),
        ("cuStreamWriteValue32_v2", "s0"),
        ("cuEventRecord", "s1"),
        ("cuStreamWaitEvent", "s0"),
        ("d2", ""),
    ]
    assert all(step.relies_on_order for step in chain[1:])

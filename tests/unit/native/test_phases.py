"""Forward, backward and update found in what iterations submit, against their labels."""

import struct
import zlib
from itertools import groupby

import pytest
from iterations.phases import INFERENCE, TRAINING, recompute_layers, train_from_cache

from tandem._marks import PHASE_BEGIN, PHASE_END, fnv1a
from tandem._native import split_phases

RECORD = struct.Struct("<QBBHIQQQIIQQ")
KINDS = {
    "launch": (1, 0),
    "to_device": (2, 1),
    "to_host": (2, 2),
    "alloc": (4, 0),
    "free": (5, 0),
}
MARK = 11
LETTERS = {"forward": "F", "backward": "B", "update": "U"}


def encode(operation, *, ticks=0):
    kind, *rest = operation
    number, value = KINDS[kind]
    named = zlib.crc32(rest[0].encode()) if rest else 0
    size = int(rest[1]) if len(rest) > 1 else 0
    return RECORD.pack(ticks, number, 0, 0, 1, 5, named, size, 4, 32, 0, value)


def mark(kind, name):
    return RECORD.pack(0, MARK, kind, 0, 1, 0, fnv1a(name.encode()), 0, 0, 0, 0, 0)


def iterations_of(program):
    """Yield each iteration's records, and a letter for the phase of each of its launches."""
    records, letters, letter = b"", "", "-"
    for operation in program:
        match operation:
            case ("step",):
                yield records, letters
                records, letters, letter = b"", "", "-"
            case ("phase", name):
                letter = LETTERS[name]
            case _:
                records += encode(operation)
                letters += letter if operation[0] == "launch" else ""


def boundaries(letters):
    """Return the launches that begin a new phase."""
    lengths = [len(list(group)) for _, group in groupby(letters)]
    return [sum(lengths[:place]) for place in range(1, len(lengths))]


def is_right(found, labels):
    """Tell whether every boundary is within a twentieth of the iteration."""
    pairs = list(zip(boundaries(found), boundaries(labels), strict=False))
    same = len(boundaries(found)) == len(boundaries(labels))
    return same and all(abs(one - other) <= len(labels) / 20 for one, other in pairs)


def share_right(program):
    verdicts = [is_right(split_phases(records), labels) for records, labels in program]
    return sum(verdicts) / len(verdicts)


@pytest.mark.parametrize("layers", [8, 12, 30])
@pytest.mark.parametrize("name", TRAINING)
def test_the_phases_of_training_are_found(name, layers):
    assert share_right(iterations_of(TRAINING[name](2, layers))) >= 0.95


@pytest.mark.parametrize("size", [4, 12, 30])
@pytest.mark.parametrize("name", INFERENCE)
def test_nothing_is_claimed_of_inference(name, size):
    for records, _ in iterations_of(INFERENCE[name](2, size)):
        assert split_phases(records) == ""


def test_a_loop_whose_beginning_is_not_known_is_not_split_by_its_sequence():
    (records, labels), *_ = iterations_of(train_from_cache(1))
    without_batch = records[64:]

    assert split_phases(records)
    assert split_phases(without_batch) == ""
    assert "U" in labels


def test_marks_win():
    launches = "FFFFF-FFBBBUUUU"
    records = b""
    names = {letter: name for name, letter in LETTERS.items()}
    for letter, group in groupby(launches):
        inside = b"".join(encode(("launch", "same")) for _ in group)
        if letter == "-":
            records += mark(PHASE_BEGIN, "logging") + inside + mark(PHASE_END, "logging")
        else:
            name = names[letter]
            records += mark(PHASE_BEGIN, name) + inside + mark(PHASE_END, name)

    assert split_phases(records) == launches


def test_marks_that_differ_from_what_would_be_found_win():
    (records, labels), *_ = iterations_of(recompute_layers(1))
    marked = mark(PHASE_BEGIN, "forward") + records + mark(PHASE_END, "forward")

    assert set(split_phases(records)) == {"F", "B", "U"}
    assert split_phases(marked) == "F" * len(labels)


@pytest.mark.parametrize(("queried", "found"), [(8, True), (0, False)])
def test_an_event_that_is_found_done_is_no_wait_in_the_update(queried, found):
    (records, _), *_ = iterations_of(train_from_cache(1))
    sync = RECORD.pack(0, 6, queried, 0, 1, 5, 0, 0, 0, 0, 0, 0)
    end = len(records) - 3 * 64  # two launches before the copy of the loss

    assert bool(split_phases(records[:end] + sync + records[end:])) is found


@pytest.mark.parametrize("count", [0, 1, 15, 16, 20_000])
def test_launches_of_one_function_have_no_phases(count):
    assert split_phases(encode(("launch", "same")) * count) == ""


def test_two_functions_in_turn_are_looked_at_in_bounded_time():
    pair = encode(("launch", "one")) + encode(("launch", "other"))

    assert split_phases(pair * 30_000) == ""


def test_half_a_record_is_refused():
    with pytest.raises(ValueError, match="65 bytes are no whole number of records of 64"):
        split_phases(bytes(65))

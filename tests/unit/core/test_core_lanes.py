"""Which jobs are admitted to the GPU, in which lane, and whose turn it is."""

import pytest

from tandemd.core.errors import NeverFitsError
from tandemd.core.lanes.lanes import Lanes, Need, Outcome

A, B, C, D = ((0, f"j:{number}") for number in range(4))


def need(persistent, ephemeral):
    return Need(persistent_bytes=persistent, ephemeral_bytes=ephemeral)


def test_lanes_are_side_by_side_while_there_is_room_and_shared_beyond():
    lanes = Lanes(capacity_bytes=20)

    assert lanes.request(A, need(1, 7)) == Outcome(admitted=(A,))
    assert lanes.request(B, need(1, 9)) == Outcome(admitted=(B,))
    assert lanes.request(C, need(1, 7)) == Outcome(admitted=(C,))  # 2 are free and 1 is enough

    assert lanes.lanes == [{A, C}, {B}]
    assert lanes.free_bytes == 1


def test_a_lane_grows_for_who_joins_it_and_shrinks_when_they_leave():
    lanes = Lanes(capacity_bytes=10)
    lanes.request(A, need(1, 5))

    lanes.request(B, need(1, 8))
    assert (lanes.lanes, lanes.free_bytes) == ([{A, B}], 0)
    lanes.leave(B)

    assert lanes.free_bytes == 4


def test_nobody_goes_before_the_first_in_line_unless_the_order_says_so():
    def line_up(order):
        lanes = Lanes(capacity_bytes=10, order=order)
        lanes.request(A, need(6, 1))
        lanes.request(B, need(8, 2))
        lanes.request(C, need(2, 1))
        return lanes

    assert line_up("fifo").waiting == [B, C]
    assert line_up("srtf").waiting == [B]


@pytest.mark.parametrize(("order", "first"), [("fifo", B), ("srtf", D), ("fair", B), ("pack", C)])
def test_the_order_says_who_comes_when_somebody_leaves(order, first):
    lanes = Lanes(capacity_bytes=10, order=order)
    lanes.request(A, need(10, 0))
    lanes.request(B, need(6, 1), remaining_ns=30)
    lanes.request(C, need(8, 1), remaining_ns=20)
    lanes.request(D, need(7, 1), remaining_ns=10)

    assert lanes.leave(A).admitted == (first,)


def test_who_waits_hears_how_much_is_missing():
    lanes = Lanes(capacity_bytes=10)
    lanes.request(A, need(6, 1))
    lanes.request(B, need(5, 1))
    lanes.request(C, need(2, 1))

    assert lanes.missing_bytes(B) == 2  # in the lane of A it needs 5, and 3 are left
    assert lanes.missing_bytes(C) == 0  # it would fit, but B is ahead of it
    assert lanes.leave(B).admitted == (C,)


@pytest.mark.parametrize(("order", "turns"), [("fifo", [A, A]), ("fair", [B, A]), ("srtf", [B, B])])
def test_members_of_a_lane_take_turns_in_the_order(order, turns):
    lanes = Lanes(capacity_bytes=10, order=order)
    lanes.request(A, need(1, 7), remaining_ns=100)
    lanes.request(B, need(1, 7), remaining_ns=80)
    assert lanes.want(A).begun == (A,)
    assert lanes.want(B).begun == ()

    seen, running = [], A
    for _ in turns:
        lanes.want(running)
        lanes.charge(running, 15)
        (running,) = lanes.end(running).begun
        seen.append(running)

    assert seen == turns


def test_a_member_that_leaves_in_its_turn_gives_it_away():
    lanes = Lanes(capacity_bytes=10)
    lanes.request(A, need(1, 7))
    lanes.request(B, need(1, 7))
    lanes.want(A)
    lanes.want(B)

    assert lanes.leave(A) == Outcome(begun=(B,))


def test_what_cannot_be_is_refused_with_the_reason():
    lanes = Lanes(capacity_bytes=10)
    lanes.request(A, need(1, 7))

    with pytest.raises(NeverFitsError, match="may use 11 B, 1 B more than the gpu has; lower"):
        lanes.request(B, need(4, 7))
    with pytest.raises(ValueError, match="has asked before"):
        lanes.request(A, need(1, 1))
    with pytest.raises(ValueError, match="runs no iteration"):
        lanes.end(A)
    with pytest.raises(KeyError):
        lanes.missing_bytes(A)


@pytest.mark.parametrize("held", [0, 4, 10])
@pytest.mark.parametrize("most", [5, 10, 99])
def test_that_one_who_is_not_known_would_be_let_in_is_known_before(held, most):
    lanes = Lanes(capacity_bytes=10)
    if held:
        lanes.request(A, need(held, 0))

    would_come = lanes.has_room(None, most)

    assert would_come is bool(lanes.request(B, None, most_bytes=most).admitted)
    assert would_come is (held < 10)


def test_while_one_is_alone_nobody_would_be_let_in():
    lanes = Lanes(capacity_bytes=10)
    lanes.request(A, need(1, 0))
    lanes.request(B, None)
    assert lanes.alone == [B]

    assert not lanes.has_room(need(1, 0), 10)
    assert not lanes.has_room(None, 1)

"""How much GPU time an iteration or request takes, and how long one has waited."""

from tandemd.core.turns.pieces import LEAST_NS, Kind, Piece

MS = 1_000_000


def piece(*took_ms, kind=Kind.REQUEST):
    """A piece that has just begun, after pieces of these lengths; and its group's GPU time."""
    found, served_ns = Piece(), 0
    found.end(kind, 1, served_ns, now_ns=0)
    for ms in took_ms:
        served_ns += ms * MS
        found.end(kind, 1, served_ns, now_ns=0)
    return found, served_ns


def test_where_nothing_is_known_a_quantum_is_a_piece_and_never_foreseen():
    found = Piece()
    found.take_quantum(10 * MS, served_ns=0, now_ns=1)
    assert (found.usual_ns, found.is_foreseen(0)) == (10 * MS, False)
    assert found.left_ns(4 * MS) == 6 * MS

    found.take_quantum(10 * MS, served_ns=11 * MS, now_ns=20 * MS)

    assert (found.began_ns, found.left_ns(11 * MS)) == (20 * MS, 10 * MS)


def test_the_first_that_ends_tells_nothing_since_its_beginning_was_not_seen():
    found = Piece()

    found.end(Kind.REQUEST, 1, 500 * MS, now_ns=0)

    assert not found.is_known


def test_the_median_of_the_newest_is_usual_and_the_longest_is_the_most():
    found, served_ns = piece(900, *(10,) * 6, *(20,) * 4)

    assert (found.usual_ns, found.most_ns) == (10 * MS, 20 * MS)
    assert found.left_ns(served_ns + 4 * MS) == 6 * MS


def test_one_that_is_late_has_the_rest_of_the_longest_left_and_then_counts_as_new():
    found, served_ns = piece(10, 10, 10, 14)

    assert found.left_ns(served_ns + 11 * MS) == 3 * MS
    assert found.is_foreseen(served_ns + 13 * MS)
    assert found.left_ns(served_ns + 14 * MS) == 10 * MS
    assert not found.is_foreseen(served_ns + 14 * MS)


def test_several_that_ended_at_once_took_as_long_each():
    found, served_ns = piece(6)

    found.end(Kind.REQUEST, 3, served_ns + 12 * MS, now_ns=0)

    assert (found.usual_ns, found.most_ns) == (4 * MS, 6 * MS)


def test_none_is_shorter_than_what_looks_tell_apart():
    found, _ = piece(0)

    assert found.usual_ns == LEAST_NS


def test_iterations_count_before_requests_and_begin_to_be_learnt_anew():
    found, served_ns = piece(40)

    found.end(Kind.ITERATION, 1, served_ns, now_ns=0)
    found.end(Kind.ITERATION, 1, served_ns + 5 * MS, now_ns=0)
    found.end(Kind.REQUEST, 1, served_ns + 6 * MS, now_ns=0)

    assert (found.kind, found.usual_ns, found.most_ns) == (Kind.ITERATION, 5 * MS, 5 * MS)
    assert found.left_ns(served_ns + 6 * MS) == 4 * MS


def test_in_the_midst_of_a_known_piece_a_pause_begins_no_other():
    found, served_ns = piece(10)
    found.account(0, 7)

    found.begin(served_ns + 1, now_ns=50)
    assert (found.began_ns, found.waited_ns) == (0, 7)
    found.end(Kind.REQUEST, 1, served_ns + 2, now_ns=60)
    found.begin(served_ns + 2, now_ns=90)

    assert (found.began_ns, found.waited_ns) == (90, 0)


def test_waits_add_up_and_are_told_as_of_any_time():
    found = Piece()
    found.account(10, 25)
    found.account(10, 30)
    found.account(50, 55)

    assert found.waited_ns == 25
    assert found.waited_by_ns(70, hold_since_ns=60) == 35
    assert found.waited_by_ns(70, hold_since_ns=None) == 25

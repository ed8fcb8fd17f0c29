from tandemd.edges.seldom import EVERY_S, MOST_UIDS, Seldom


def test_so_many_lines_of_each_user_are_told_in_a_while():
    now_s = [0.0]
    seldom = Seldom(lines=2, now_s=lambda: now_s[0])

    assert [seldom.is_time(1000) for _ in range(4)] == [True, True, False, False]
    assert seldom.is_time(1001)
    now_s[0] = EVERY_S
    assert seldom.is_time(1000)


def test_users_without_number_take_no_more_than_a_little_memory():
    seldom = Seldom(now_s=lambda: 0.0)
    for uid in range(3 * MOST_UIDS):
        seldom.is_time(uid)

    assert len(seldom._told) <= MOST_UIDS

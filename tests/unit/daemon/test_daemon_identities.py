"""Who somebody is: asked of the user database once, and never on the loop's thread."""

import os
import pwd
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _native
from tandemd import identities as module
from tandemd.config.limits import Limit, Limits
from tandemd.core.events import JobExited, ProcessAttached
from tandemd.core.model import JobClass, JobSpec
from tandemd.core.scheduler import Scheduler
from tandemd.desk import Desk
from tandemd.edges.attach import Gone, Received
from tandemd.edges.clock import MonotonicClock
from tandemd.identities import (
    KEPT_S,
    NOBODY_KEPT_S,
    OUTLIVES_S,
    Identities,
    Identity,
    identity_of,
)
from tandemd.introductions import MOST_WAITING, Introductions
from tandemd.loop import Loop

SOON_S = 20


class UserDatabase:
    """Answers when it is let; records the uids asked about and the threads that asked."""

    def __init__(self):
        self.asked, self.threads = [], set()
        self.knows_nobody = False
        self.lets = threading.Event()
        self.lets.set()
        self.is_asked = threading.Event()

    def look_up(self, uid):
        self.asked.append(uid)
        self.threads.add(threading.get_ident())
        self.is_asked.set()
        assert self.lets.wait(SOON_S)
        if self.knows_nobody:
            return Identity(uid=uid, user=str(uid), groups=frozenset(), is_found=False)
        return Identity(uid=uid, user=f"user{uid}", groups=frozenset({"staff"}))


@pytest.fixture
def database():
    return UserDatabase()


def test_the_user_database_says_who_somebody_is():
    me = pwd.getpwuid(os.getuid())

    found = identity_of(os.getuid())

    groups = os.getgrouplist(me.pw_name, me.pw_gid)
    assert (found.uid, found.user) == (os.getuid(), me.pw_name)
    assert sorted(module._groups(me.pw_name, me.pw_gid)) == sorted(groups)


def test_whom_the_user_database_does_not_know_has_a_number_and_no_groups():
    assert identity_of(2**31 - 7) == Identity(
        uid=2**31 - 7, user=str(2**31 - 7), groups=frozenset(), is_found=False
    )


def test_a_name_that_is_no_utf_8_can_be_told(monkeypatch):
    entry = SimpleNamespace(pw_name="j\udcf6rg", pw_gid=os.getgid())
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: entry)

    found = identity_of(7)

    assert found.user.encode() == "j\ufffdrg".encode()
    assert os.getgid() in module._groups(entry.pw_name, entry.pw_gid)


def test_an_answer_counts_for_a_while_and_is_known_after_that_until_there_is_another(database):
    now_s = [0.0]
    some = Identities(database.look_up, now_s=lambda: now_s[0])

    assert some.known(7) is None
    some.of(7), some.of(7)
    now_s[0] = KEPT_S
    assert (some.is_fresh(7), some.known(7).user, database.asked) == (False, "user7", [7])
    some.of(7)

    assert (some.is_fresh(7), database.asked) == (True, [7, 7])


def test_somebody_found_before_is_gone_by_for_a_while_when_nobody_is_found(database):
    now_s = [0.0]
    some = Identities(database.look_up, now_s=lambda: now_s[0])
    some.of(7)
    database.knows_nobody = True

    now_s[0] = KEPT_S
    assert some.of(7).user == some.known(7).user == "user7"
    assert some.is_fresh(7)
    now_s[0] += NOBODY_KEPT_S
    assert not some.is_fresh(7)
    now_s[0] = OUTLIVES_S
    assert some.of(7).user == some.known(7).user == "7"


def test_that_nobody_was_found_counts_for_a_moment_only(database):
    now_s = [0.0]
    some = Identities(database.look_up, now_s=lambda: now_s[0])
    database.knows_nobody = True
    some.of(7)
    database.knows_nobody = False

    assert some.of(7).user == "7"
    now_s[0] = NOBODY_KEPT_S
    assert some.of(7).user == "user7"


def test_only_so_many_are_kept_and_those_seen_last_are(database, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    some = Identities(database.look_up)
    some.of(1), some.of(2), some.known(1), some.of(3)

    assert [some.known(uid) is not None for uid in (1, 2, 3)] == [True, False, True]


def test_several_that_want_the_same_answer_ask_once(database):
    database.lets.clear()
    some = Identities(database.look_up)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(some.of, 7) for _ in range(4)]
        assert database.is_asked.wait(SOON_S)
        database.lets.set()
        users = {answer.result(SOON_S).user for answer in answers}

    assert (users, database.asked) == ({"user7"}, [7])


def test_a_database_that_cannot_be_asked_is_asked_again():
    def fail(_uid):
        raise OSError("away")

    some = Identities(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            some.of(7)

    assert some.known(7) is None


def test_whom_nobody_asked_about_has_the_least():
    limits = Limits(identities=Identities(), default=Limit(job_class=JobClass.LATENCY))

    assert (limits.ceiling(7), limits.is_admin(7)) == (JobClass.BATCH, False)
    assert (limits.ceiling(0), limits.is_admin(0)) == (JobClass.LATENCY, True)


def loop_with_jobs(*uids, name=""):
    channels = SimpleNamespace(perform=lambda _action: None)
    loop = Loop(
        scheduler=Scheduler(), clock=MonotonicClock(), poller=_native.Poller(), channels=channels
    )
    for number, uid in enumerate(uids, 1):
        loop.handle(
            ProcessAttached(
                now_ns=1,
                process_id=number,
                job_id=number,
                uid=uid,
                gpu=0,
                spec=JobSpec(name=name),
            )
        )
    return loop


def test_a_listing_asks_about_the_caller_once_and_the_loop_comes_round_meanwhile(database):
    some = Identities(database.look_up, now_s=lambda: 0.0)  # no answer expires meanwhile
    for uid in (7, 8):
        some.of(uid)  # as at their HELLO
    loop = loop_with_jobs(*[7] * 50, *[8] * 50)
    desk = Desk(
        loop=loop,
        sessions=SimpleNamespace(commands={}, info={}),
        inventory=SimpleNamespace(refresh=lambda: None, gpus=tuple),
        limits=Limits(identities=some),
        privacy="own-only",
        runtime_dir=Path("/nowhere"),
    )
    database.asked.clear(), database.threads.clear()
    database.is_asked.clear(), database.lets.clear()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(desk.jobs, 9, finished=False)
        assert database.is_asked.wait(SOON_S)
        loop._round(notable=True)
        assert not answer.done()
        database.lets.set()
        while not answer.done():
            loop._round(notable=False)
        assert answer.result() == []
        answer = pool.submit(desk.jobs, 8, finished=False)
        while not answer.done():
            loop._round(notable=False)

    assert [(view.user, view.uid) for view in answer.result()] == [("user8", 8)] * 50
    assert database.asked == [9]
    assert threading.get_ident() not in database.threads


@pytest.mark.parametrize(
    ("privacy", "is_told"), [("own-only", False), ("hide-cmdline", True), ("open", True)]
)
def test_only_where_all_may_see_them_other_peoples_jobs_are_named(privacy, is_told, database):
    loop = loop_with_jobs(7, 8, name="same")
    desk = Desk(
        loop=loop,
        sessions=SimpleNamespace(commands={}, info={}),
        inventory=SimpleNamespace(refresh=lambda: None, gpus=tuple),
        limits=Limits(identities=Identities(database.look_up)),
        privacy=privacy,
        runtime_dir=Path("/nowhere"),
    )

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(desk.explanation, 8, "same")  # its own, though others share the name
        while not answer.done():
            loop._round(notable=True)

    found = answer.result()
    assert found.name == "j-2"
    text = " | ".join((found.summary, *found.lines))
    assert ("j-1 'same'" in text) is is_told
    assert ("shares the gpu with another user's job (normal)" in text) is not is_told


def test_a_name_is_that_of_ones_own_job_also_once_that_has_ended(database):
    loop = loop_with_jobs(7, 8, name="same")
    loop.scheduler.handle(JobExited(now_ns=1, job_id=2))
    desk = Desk(
        loop=loop,
        sessions=SimpleNamespace(commands={}, info={}),
        inventory=SimpleNamespace(refresh=lambda: None, gpus=tuple),
        limits=Limits(identities=Identities(database.look_up)),
        privacy="open",
        runtime_dir=Path("/nowhere"),
    )

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(desk.explanation, 8, "same")
        while not answer.done():
            loop._round(notable=True)

    assert answer.result().name == "j-2"


def connection(number, uid):
    return SimpleNamespace(number=number, peer=SimpleNamespace(uid=uid))


def said(of, packet):
    return Received(connection=of, packet=packet)


@pytest.fixture
def hello(monkeypatch):
    class Hello:
        pass

    monkeypatch.setattr(_native, "Hello", Hello)
    return Hello()


def introductions(identities, deliver, *, at_once=False):
    return Introductions(
        identities=identities, trusted_uids=frozenset({0}), deliver=deliver, at_once=at_once
    )


def test_a_greeting_waits_for_the_user_database_in_order_and_others_do_not(database, hello):
    heard, last = [], threading.Event()
    new, old = connection(1, uid=7), connection(2, uid=8)
    of_new = [said(new, hello), *(said(new, n) for n in range(MOST_WAITING * 2))]
    of_old = [said(old, hello), said(old, "mapped"), Gone(connection=old)]

    def deliver(message):
        heard.append(message)
        if message is of_new[MOST_WAITING - 1]:
            last.set()

    some = Identities(database.look_up)
    some.of(8)
    database.lets.clear()
    door = introductions(some, deliver)

    for message in (*of_new, *of_old):
        door.take(message)
    assert heard == of_old
    database.lets.set()
    assert last.wait(SOON_S)

    assert heard[len(of_old) :] == of_new[:MOST_WAITING]


@pytest.mark.parametrize("uid", [0, 7])
def test_nobody_waits_who_is_trusted_or_was_found_and_is_asked_about_behind(database, hello, uid):
    heard, now_s = [], [0.0]
    some = Identities(database.look_up, now_s=lambda: now_s[0])
    some.of(7)
    now_s[0] = KEPT_S
    database.asked.clear(), database.is_asked.clear(), database.lets.clear()
    door = introductions(some, heard.append)

    greetings = [said(connection(number, uid), hello) for number in range(3)]
    for greeting in greetings:
        door.take(greeting)

    assert heard == greetings
    assert database.is_asked.wait(SOON_S)
    database.lets.set()
    door._others.finish(SOON_S)
    assert (database.asked, some.is_fresh(uid)) == ([uid], True)


def test_who_was_not_found_waits_and_so_does_who_was_found_long_ago(database, hello):
    heard, now_s = [], [0.0]
    some = Identities(database.look_up, now_s=lambda: now_s[0])
    some.of(7)
    now_s[0] = OUTLIVES_S
    database.knows_nobody = True
    some.of(8)
    database.knows_nobody = False
    now_s[0] += NOBODY_KEPT_S
    database.lets.clear()
    door = introductions(
        some, lambda message: heard.append(some.known(message.connection.peer.uid))
    )

    for number, uid in enumerate((7, 8)):
        door.take(said(connection(number, uid), hello))

    assert heard == []
    database.lets.set()
    door._newcomers.finish(SOON_S)
    assert [who.user for who in heard] == ["user7", "user8"]


def test_a_greeting_is_dropped_when_its_connection_has_gone_meanwhile(database, hello):
    heard = []
    database.lets.clear()
    door = introductions(Identities(database.look_up), heard.append)
    first, second = connection(1, uid=7), connection(2, uid=8)

    for message in (said(first, hello), said(second, hello)):
        door.take(message)
    assert database.is_asked.wait(SOON_S)
    for gone in (first, second):
        door.take(Gone(connection=gone))
    database.lets.set()
    door._newcomers.finish(SOON_S)

    assert (heard, database.asked) == ([], [7])


def test_greetings_need_no_thread_that_is_not_there_from_the_start(database, hello, monkeypatch):
    heard = []
    door = introductions(Identities(database.look_up), heard.append)
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: 1 / 0)

    door.take(said(connection(1, uid=7), hello))
    door.take(said(connection(2, uid=0), hello))
    door._newcomers.finish(SOON_S), door._others.finish(SOON_S)

    assert (len(heard), sorted(database.asked)) == (2, [0, 7])


def test_a_greeting_is_passed_on_where_the_user_database_fails(hello):
    def fail(_uid):
        raise OSError("away")

    heard = []
    door = introductions(Identities(fail), heard.append, at_once=True)
    door.take(said(connection(1, uid=7), hello))

    assert len(heard) == 1

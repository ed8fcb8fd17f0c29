import threading

import pytest

from tandemd.edges.worker import Worker


@pytest.mark.parametrize("at_once", [False, True])
def test_an_errand_that_fails_keeps_nobody_from_the_next(at_once):
    done = threading.Event()
    worker = Worker("errands", at_once=at_once)

    worker.do(lambda: 1 / 0)
    worker.do(done.set)

    assert done.wait(60)


def test_whoever_finishes_waits_for_what_was_asked_for():
    worker, done = Worker("errands", at_once=False), []
    go_on = threading.Event()
    worker.do(go_on.wait)
    worker.do(lambda: done.append(True))

    go_on.set()
    worker.finish(60)

    assert done == [True]


def test_errands_are_done_in_order_by_one_thread():
    threads, done = [], threading.Event()
    worker = Worker("errands", at_once=False)

    for _ in range(5):
        worker.do(lambda: threads.append(threading.get_ident()))
    worker.do(done.set)

    assert done.wait(60)
    assert len(threads) == 5
    assert set(threads) == {threads[0]} != {threading.get_ident()}


def test_a_thread_that_cannot_be_had_is_tried_for_again(monkeypatch):
    start, done = threading.Thread.start, threading.Event()
    worker = Worker("errands", at_once=False)

    def fail(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="thread"):
        worker.do(lambda: None)
    monkeypatch.setattr(threading.Thread, "start", start)
    worker.do(done.set)

    assert done.wait(60)

"""`AsyncClient` against a real daemon."""

import asyncio
import inspect
import subprocess
import sys
import threading

import pytest

from tandem import AsyncClient, Client
from tandem.errors import DeadlineError, NotFoundError, StateError, UsageError

PATIENCE_S = 30
LEFT_OPEN = """
import asyncio, sys, tandem

async def body():
    watch = await tandem.AsyncClient().watch()
    if sys.argv[1] == "waits":
        following = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.1)

asyncio.run(body())
"""


def public(kind):
    functions = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in functions if not name.startswith("_")}


def run(body, runtime_dir):
    """Run `body(client)` in an event loop with a client that is closed at the end."""

    async def whole():
        async with AsyncClient(directory=str(runtime_dir)) as client:
            return await asyncio.wait_for(body(client), PATIENCE_S)

    return asyncio.run(whole())


def no_thread_is_left():
    for thread in threading.enumerate():
        if thread.name.startswith("tandem-client"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_it_has_what_client_has_with_the_same_arguments():
    assert public(AsyncClient) - {"aclose"} == public(Client) - {"close"}
    for name in public(Client) - {"close"}:
        plain, awaited = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert plain.parameters == awaited.parameters, name
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name)), name


def test_calls_are_those_of_client_and_go_on_side_by_side(job, runtime_dir):
    async def body(client):
        changed = await client.set(job, priority="batch")
        jobs, status, metrics = await asyncio.gather(
            client.jobs(), client.status(), client.metrics()
        )
        return (
            changed.priority,
            [one.name for one in jobs],
            status.jobs,
            "tandem_job_info" in metrics,
        )

    assert run(body, runtime_dir) == ("batch", [job], 1, True)


def test_errors_are_those_of_client(job, runtime_dir):
    async def body(client):
        with pytest.raises(NotFoundError, match="j-1"):
            await client.job("j-1")
        with pytest.raises(UsageError, match="nothing to change"):
            await client.set(job)
        with pytest.raises(DeadlineError):
            await client.wait(job, deadline_s=0.1)
        await client.aclose()
        with pytest.raises(StateError, match="closed"):
            await client.status()

    run(body, runtime_dir)


def test_changes_can_be_watched_from_the_moment_it_returns(job, runtime_dir):
    async def body(client):
        watch = await client.watch()
        await client.pause(job)
        async for event in watch:
            if event.job.name == job and event.job.state == "paused":
                break
        await watch.aclose()
        return [event async for event in watch]

    assert run(body, runtime_dir) == []
    no_thread_is_left()


def test_who_waited_too_short_for_an_event_misses_none(job, runtime_dir):
    async def body(client):
        watch = await client.watch()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.01)
        await client.pause(job)
        return (await anext(watch)).job.state

    assert run(body, runtime_dir) == "paused"
    no_thread_is_left()


def test_closing_ends_what_is_watched(job, runtime_dir):
    async def body(client):
        watch = await client.watch()
        following = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)  # now it waits
        await client.aclose()
        return await following

    assert run(body, runtime_dir) is None
    no_thread_is_left()


def test_who_is_cancelled_while_it_waits_is_let_go(job, runtime_dir):
    async def body(client):
        waiting = asyncio.ensure_future(client.wait(job))
        await client.status()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return (await client.job(job)).state != "exited"

    assert run(body, runtime_dir)
    no_thread_is_left()


@pytest.mark.parametrize("what", ["waits", "is idle"])
def test_a_program_that_leaves_a_watch_open_ends_in_peace(what, daemon, environ):
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, what],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")

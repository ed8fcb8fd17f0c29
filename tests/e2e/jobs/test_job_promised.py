"""A job with promised memory takes it from others, which continue later and lose nothing."""

import pytest
from running_job import until
from test_job_tick_tock import MIB, is_kernel, jobs_beside_a_filler, take

pytestmark = pytest.mark.slow

KERNELS = 10  # of an iteration in alternating.py
WINDOW = 2  # kernels by which the job may be ahead of its GPU, into the next iteration
SIZE = 34  # MiB; the filler leaves less than twice as much


def trainer_and_server(place, *options):
    """A trainer that computes until the folder has a file `enough`, and a server not yet begun."""
    (trainer,) = jobs_beside_a_filler(place, 1, "--priority", "batch", *options)
    take([trainer], SIZE)
    server = place.job("server", "--priority", "latency", "--memory-min", f"{SIZE}MiB")
    trainer.start(f"t.train_until({str(place.folder / 'enough')!r})")
    until(lambda: any(map(is_kernel, place.ran(trainer.pid))), what="it computes")
    return trainer, server


def test_it_is_taken_between_two_iterations_and_comes_back(place):
    trainer, server = trainer_and_server(place, "--swappable")

    address = server.do(f"int(alloc({SIZE * MIB}))")
    until(
        lambda: "too large to fit beside" in place.explain("t1"),
        what="it is said why the trainer pauses",
    )
    paused = sum(map(is_kernel, place.ran(trainer.pid)))
    freed = server.do(f"free({address})")
    until(lambda: sum(map(is_kernel, place.ran(trainer.pid))) > paused, what="the trainer goes on")
    (place.folder / "enough").touch()
    steps = trainer.result()

    assert freed == "CUDA_SUCCESS"
    assert trainer.do("t.is_right()")
    ran = place.ran(trainer.pid)
    gone = next(i for i, row in enumerate(ran) if row["kind"] == "copy_dtoh")
    assert paused == sum(map(is_kernel, ran[:gone])) < KERNELS * steps
    assert paused % KERNELS <= WINDOW, "in the middle of an iteration"


def test_what_cannot_be_moved_is_taken_from_nobody(place):
    trainer, server = trainer_and_server(place)

    assert server.do(f"alloc({SIZE * MIB})") == "CUDA_ERROR_OUT_OF_MEMORY"
    (place.folder / "enough").touch()
    assert trainer.result() > 0
    assert trainer.do("t.is_right()")

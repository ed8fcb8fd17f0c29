"""A context for which the device has no room waits for it, as an allocation does."""

from running_job import until

MIB = 1 << 20
# Allocates what is left, down to less than a context needs, which is 8 MiB.
FILL = (
    f"[int(a) for size in (512, 256, 128, 64, 32, 16, 8, 4, 2) for a in [alloc(size * {MIB})]"
    " if not isinstance(a, str)]"
)
CREATE = "cu.cuCtxCreate(None, 0, 0)[0].name"


def full(place, *options):
    """A job that holds all of the device, and its addresses."""
    job = place.job("holder", *options)
    job.do("exec('import swapping', globals())")
    return job, job.do(FILL)


def test_only_who_may_wait_for_memory_waits_for_a_context(place):
    patient, other = place.job("patient", "--wait-memory=1h"), place.job("other")
    holder, held = full(place)

    assert other.do(CREATE) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert place.starting("late").says_nothing_more()
    patient.start(CREATE)
    with place.client() as client:
        until(lambda: client.job("patient").memory_wait_place == 1, what="it stands in line")
    assert holder.do(f"free({held[0]})") == "CUDA_SUCCESS"
    assert patient.result() == "CUDA_SUCCESS"


def test_the_first_thing_a_job_does_may_be_to_wait_for_its_context(place):
    holder, held = full(place)
    late = place.starting("late", "--wait-memory=1h", "-m", "4MiB")
    with place.client() as client:
        until(lambda: len(client.jobs()) == 2, what="it attached")
        until(lambda: client.job("late").memory_wait_place == 1, what="it stands in line")
        # The reason names the device, not the job's own limit, which does not count contexts.
        assert "of device memory, 1st in line" in client.job("late").reason

        assert holder.do(f"free({held[0]})") == "CUDA_SUCCESS"

        assert late.ready().do("compute()") == [15]
        assert late.do("memory()")[1] == 4 * MIB
        until(lambda: not client.job("late").memory_wait_place, what="it has left the line")


def test_memory_that_can_be_moved_makes_room_for_a_context(place):
    holder, held = full(place, "--swappable")
    sizes = [MIB, MIB]
    assert holder.do(f"free({held[0]})") == "CUDA_SUCCESS"
    kept = holder.do(f"swapping.keep(*{sizes})")
    assert holder.do(FILL)
    late = place.starting("late", "--swappable")

    assert late.ready().do("compute()") == [15]

    assert late.end() == 0  # beside its context that much memory would not have fit
    assert holder.do(f"swapping.kept({kept}, {sizes})") == [True] * 2

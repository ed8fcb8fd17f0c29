MIB = 1 << 20
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_limit_is_shown_enforced_and_given_back(place):
    job = place.job("limited", "-m", "20MiB")
    free, total, device = job.do("memory()")
    assert (total, device) == (20 * MIB, 20 * MIB)
    assert free == 20 * MIB - 4  # the word it computes with

    first = job.do(f"int(alloc({15 * MIB}))")

    assert job.do(f"alloc({6 * MIB}).__str__()") == OUT_OF_MEMORY
    assert job.do("memory()")[0] == 5 * MIB - 4
    assert job.do(f"free({first})") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({19 * MIB}))") == "CUDA_SUCCESS"
    assert job.end() == 0


def test_a_limit_can_be_changed_while_the_job_runs(place):
    job = place.job("limited", "-m", "20MiB")

    def shown_mib():
        return job.do("memory()")[1] // MIB

    place.tandem("set", "limited", "memory=40MiB")
    while shown_mib() != 40:
        pass
    big = job.do(f"int(alloc({30 * MIB}))")
    place.tandem("set", "limited", "memory=10MiB")
    while shown_mib() != 10:
        pass
    assert job.do("memory()")[0] == 0  # over its limit: it keeps what it has and gets no more
    assert job.do("alloc(1).__str__()") == OUT_OF_MEMORY
    assert job.do(f"free({big})") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({5 * MIB}))") == "CUDA_SUCCESS"

    place.tandem("set", "limited", "memory=none")
    while shown_mib() == 10:
        pass
    assert job.do(f"free(alloc({30 * MIB}))") == "CUDA_SUCCESS"


def test_a_limit_is_one_for_all_processes_of_a_job(place):
    parent = place.job("limited", "-m", "20MiB")
    second = place.joining(parent)
    with place.client() as client:
        held = parent.do(f"int(alloc({15 * MIB}))")
        assert held
        while client.job("limited").resident_bytes < 15 * MIB:
            pass

        def left():
            return second.do("memory()")[0]

        while left() > 5 * MIB:
            pass
        assert second.do(f"alloc({6 * MIB}).__str__()") == OUT_OF_MEMORY
        assert parent.do(f"free({held})") == "CUDA_SUCCESS"
        while left() < 15 * MIB:
            pass
        assert second.do(f"free(alloc({15 * MIB}))") == "CUDA_SUCCESS"

"""Several threads of one program use the driver at once."""

import pytest


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_threads_work_side_by_side_without_mixing_their_results(gpu, clock):
    gpu.options["clock"] = clock
    out = gpu.run("""
gpu = Gpu()
results = {}
def work(k):
    ok(cu.cuCtxSetCurrent(gpu.context))
    stream, word, expected = ok(cu.cuStreamCreate(1)), gpu.word(k), k
    event = ok(cu.cuEventCreate(2))
    for i in range(100):
        gpu.affine(word, 3, i, stream=stream)
        expected = (expected * 3 + i) % 2**32
        if i % 10 == 0:
            ok(cu.cuEventRecord(event, stream))
            ok(cu.cuEventSynchronize(event))
            ok(cu.cuMemFree(ok(cu.cuMemAlloc(4096))))
    ok(cu.cuStreamSynchronize(stream))
    results[k] = gpu.read(word) == [expected]
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for thread in threads: thread.start()
with outside():
    for thread in threads: thread.join()
print(sorted(results.items()) == [(k, True) for k in range(8)])
""")

    assert out == "True"


def test_a_host_function_may_wait_for_another_thread_that_uses_the_driver(gpu):
    gpu.options["clock"] = "real"
    out = gpu.run("""
gpu = Gpu(); gate = threading.Event()
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(30) and None)
stream = ok(cu.cuStreamCreate(1))
ok(cu.cuLaunchHostFunc(stream, ctypes.cast(call, ctypes.c_void_p).value, 0))
word = ok(cu.cuMemAlloc(4))
gate.set()
ok(cu.cuStreamSynchronize(stream))
print("through")
""")

    assert out == "through"

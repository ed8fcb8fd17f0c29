"""Facts about recordings, tested on recordings of a few calls."""

import pytest
from bench.gpu.figures.trace_facts import family, full_words, iterations, parameters, streams
from recordings import CONTEXT, Thread, recording_of

from tandem.dag.from_trace import from_trace

ADDRESS, BYTES = 0x7F_0000_0000, 4096
OWN = 0x5500


@pytest.mark.parametrize(
    ("kernel", "whose"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4EEEv", "torch"),
        ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc", "cudnn"),
        ("_ZN5cudnn3ops20nchwToNhwcKernelE", "cudnn"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", "cublas"),
        ("cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_32x1_nn_align8", "cutlass"),
        ("_ZN7cutlass7Kernel2I66cutlass_80_tensorop_s1688gemm_128x128_nn_align4EEvT_", "cutlass"),
        ("gemm_fusion_dot_3", "xla"),
        ("input_reduce_fusion", "xla"),
        ("ampere_sgemm_128x64_tn", "cublas"),
        ("nvjet_hsh_128x64_64x8_2x1_v_bz_TNN", "cublas"),
        ("add_and_halve", "triton"),
        ("_ZN5bench9halve_sumB2v1E5ArrayIfLi1E", "other"),
        ("triton_poi_fused_addmm_relu_0", "triton"),
        ("_ZN3cub17DeviceScanKernelE", "cub"),
        ("affine", "other"),
    ],
)
def test_kernels_are_told_apart_by_name(kernel, whose):
    assert family(kernel) == whose


def test_only_whole_words_of_parameters_count():
    # A pointer, an int, and a structure of 20 bytes, which is two and a half words.
    assert full_words([8, 4, 20], [10, 11, 12, 13, 14]) == [10, 12, 13]
    assert full_words([8, 8], [10]) == [10]
    assert full_words([], [10]) == []


def test_words_are_addresses_or_not_and_lead_somewhere_or_not():
    thread = Thread().function(name=b"_Z4vaddPfS_m", sizes=(8, 8, 8))
    thread.call("cuMemAlloc_v2", 0x9, ADDRESS, BYTES, number=1)
    thread.launch(number=2, stream=OWN, parameters=(ADDRESS + 8, 2 * ADDRESS, 5))
    thread.call("cuMemFree_v2", ADDRESS, number=3)
    thread.launch(number=4, stream=OWN, parameters=(ADDRESS + 8, ADDRESS, 5))

    assert parameters(recording_of(thread)) == {
        "other": {
            "launches": 2,
            "sized_share": 1.0,
            "words": 6,
            "addresses": 4,
            "resolved_share": 0.25,
            "all_known_share": 0.0,
        }
    }


def test_kernels_of_unknown_sizes_are_counted_as_such():
    thread = Thread().function(name=b"nvjet_x", sizes=())
    thread.launch(number=1, stream=OWN, parameters=())

    found = parameters(recording_of(thread))["cublas"]

    assert (found["launches"], found["sized_share"], found["words"]) == (1, 0.0, 0)
    assert "resolved_share" not in found  # it had no addresses


def test_streams_are_counted_by_kind_and_context():
    thread = Thread().function()
    thread.launch(number=1, stream=1).launch(number=2, stream=2)
    for number, stream in ((3, OWN), (4, OWN), (5, OWN + 1)):
        thread.launch(number=number, stream=stream)
    thread.call("cuMemsetD8Async", ADDRESS, 0, 1, OWN, stream=OWN, number=6, context=CONTEXT + 1)
    thread.launch(number=7, stream=OWN)

    assert streams(recording_of(thread)) == {
        "processes": 1,
        "contexts": 2,
        "in_legacy": 1,
        "in_per_thread": 1,
        "in_own": 5,
        "own_blocking": 3,
        "own_non_blocking": 0,
    }


def loop(*, marked):
    """Forty iterations of a copy, four launches and a wait."""
    thread = Thread()
    number = 0
    for kernel in range(4):
        thread.function(handle=0xF0 + kernel, name=b"k%d" % kernel)
    for turn in range(40):
        number += 1
        thread.call("cuMemcpyHtoDAsync_v2", ADDRESS, 1, 64, OWN, stream=OWN, number=number)
        for kernel in range(4):
            number += 1
            thread.launch(number=number, stream=OWN, function=0xF0 + kernel)
        number += 1
        thread.call("cuStreamSynchronize", OWN, stream=OWN, number=number)
        if marked:
            number += 1
            thread.call("tandem_mark_v1", 1, turn, 0, number=number)
    return from_trace(recording_of(thread), "")


def test_ends_are_held_against_marks():
    found = iterations(loop(marked=True))

    assert found["marked"] == 40
    assert found["right"] >= 36
    assert found["found"] <= 42


def test_without_marks_nothing_is_right():
    found = iterations(loop(marked=False))

    assert found["marked"] == found["right"] == 0
    assert found["found"] >= 36

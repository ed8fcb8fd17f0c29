"""Calls as text."""

import json

import pytest
from recordings import TABLE, VADD, Thread, recording_of

from tandem.trace.lines import Printer, Stamp, duration_text, text_of
from tandem.trace.records import Lost


def only(thread):
    (call,) = recording_of(thread).calls
    return call


def text(name, *words, **other):
    return text_of(only(Thread().call(name, *words, number=1, **other)), TABLE)


def test_results_through_pointers_are_shown_in_brackets_once_there_are_any():
    assert text("cuMemAlloc_v2", 0x10, 0x7F00, 4096, ns=12345) == (
        "cuMemAlloc_v2(dptr=[0x7f00], bytesize=4096) = CUDA_SUCCESS <12.35us>"
    )
    assert text("cuMemAlloc_v2", 0x10, 0, 4096, result=2) == (
        "cuMemAlloc_v2(dptr=0x10, bytesize=4096) = CUDA_ERROR_OUT_OF_MEMORY <10ns>"
    )
    assert text("cuMemAlloc_v2", 0, 0, 1, result=1).startswith("cuMemAlloc_v2(dptr=NULL")


def test_values_are_shown_by_their_type():
    assert "(bytes=[4096], dev=-1)" in text("cuDeviceTotalMem_v2", 0x10, 4096, 2**32 - 1)
    assert "hStream=CU_STREAM_LEGACY" in text("cuStreamQuery", 1)
    assert "hStream=NULL" in text("cuStreamQuery", 0)
    assert "mode=CU_STREAM_CAPTURE_MODE_RELAXED)" in text("cuStreamBeginCapture_v2", 0x55, 2)
    assert "mode=CUstreamCaptureMode(9)" in text("cuStreamBeginCapture_v2", 0x55, 9)
    assert text("cuStreamQuery", 0x55, result=600).endswith("= CUDA_ERROR_NOT_READY <10ns>")
    assert text("cuStreamQuery", 0x55, result=4242).endswith("= CUresult(4242) <10ns>")


def test_a_name_that_is_asked_for_is_quoted():
    line = text("cuGetProcAddress", 0x10, 0x20, 0x7F, 12000, 2, text=b'a"b')

    assert line.startswith(
        'cuGetProcAddress(symbol="a\\"b", pfn=[0x7f], cudaVersion=12000, flags=2)'
    )


def test_kernel_parameters_are_values_up_to_32_bits_and_addresses_above():
    thread = Thread().function(sizes=(8, 4, 2, 16))
    thread.launch(number=1, stream=1, parameters=(0x7F0012345678, 5, 0xFFFF_0007, 1, 2))

    assert "kernelParams=[0x7f0012345678, 5, 7, {0x1 0x2}]" in text_of(only(thread), TABLE)


def test_a_launch_without_a_known_kernel_shows_its_handle():
    line = text_of(only(Thread().launch(number=1, stream=1)), TABLE)

    assert f"f={VADD:#x}" in line
    assert "kernelParams=0x1000" in line


def test_parameters_that_were_not_recorded_are_dots():
    thread = Thread().function(sizes=(4, 4096))
    words = (VADD, 1, 1, 1, 32, 1, 1, 0, 1, 0x1000, 0, 9)
    thread.call("cuLaunchKernel", *words, number=1, stream=1, flags=8)

    assert "kernelParams=[9, ...]" in text_of(only(thread), TABLE)


def test_structures_are_opened():
    copy = (0x10, 1, 0xA, 0, 0, 64, 0, 0, 2, 0, 0xB, 0, 128, 4, 2, 64, 8)
    config = (0x10, 1, 2, 3, 4, 5, 6, 7, 0, 0x55)

    assert text("cuMemcpy2D_v2", *copy).startswith(
        "cuMemcpy2D_v2(pCopy={src=HOST 0xa, srcPitch=64, srcXInBytes=0, srcY=0, dst=DEVICE 0xb, "
        "dstPitch=128, dstXInBytes=4, dstY=2, WidthInBytes=64, Height=8})"
    )
    assert "config={grid=(1, 2, 3), block=(4, 5, 6), sharedMemBytes=7, hStream=0x55" in text(
        "cuLaunchKernelEx", *config, VADD, 0, 0
    )
    assert "pCopy=NULL" in text("cuMemcpy3D_v2", *[0] * 16, result=1)


def test_a_call_that_did_not_return_is_unfinished():
    assert text("cuCtxSynchronize", flags=2) == "cuCtxSynchronize( <unfinished ...>"


def test_lines_begin_with_process_thread_and_time():
    calls = recording_of(
        Thread(tid=7, time_ns=1_500_000_000)
        .call("cuCtxSynchronize", number=1, ns=250)
        .call("cuCtxSynchronize", number=2)
    ).calls
    relative = Printer(TABLE, stamp=Stamp.RELATIVE)

    line = Printer(TABLE, stamp=Stamp.TIME).line(calls[0])
    assert line.startswith("     1.500000000 [pid 100 tid 7] cuCtxSynchronize() = CUDA_SUCCESS")
    assert [relative.line(call).split()[0] for call in calls] == ["0.000000000", "0.000000250"]


def test_json_has_stable_names():
    call = only(Thread().function().launch(number=1, stream=0x55, device_ns=7))
    value = json.loads(Printer(TABLE, as_json=True).line(call))

    assert value["call"] == "cuLaunchKernel"
    assert (value["kernel"], value["device_ns"], value["stream"]) == ("vadd", 7, 0x55)
    assert value["arguments"]["kernelParams"] == "[32512, 5]"


def test_a_gap_is_shown():
    lost = Lost(pid=1, tid=2, count=3)

    assert Printer(TABLE).line(lost) == "[pid 1 tid 2] +++ 3 calls were not recorded +++"
    assert json.loads(Printer(TABLE, as_json=True).line(lost))["lost_calls"] == 3


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (0, "0ns"),
        (999, "999ns"),
        (1000, "1.000us"),
        (12_345, "12.35us"),
        (999_900, "999.9us"),
        (1_000_000, "1.000ms"),
        (123_456_789, "123.5ms"),
        (60_000_000_000, "60.00s"),
    ],
)
def test_durations_have_four_digits(ns, expected):
    assert duration_text(ns) == expected

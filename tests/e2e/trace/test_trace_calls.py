"""`tandem trace calls` and `show` on a program of cuda.bindings."""

import json
import re
import sys

from traced_program import VADD


def test_calls_are_printed_with_arguments_result_and_duration(tandem):
    done = tandem("trace", "calls", "-e", "trace=memory", "--", sys.executable, "-c", VADD)

    pid = r"\[pid \d+\] "
    assert len(done.lines) == 5
    assert re.fullmatch(
        pid + r"cuMemAlloc_v2\(dptr=\[0x[0-9a-f]+\], bytesize=4096\) = CUDA_SUCCESS <\d+ns>",
        done.lines[0],
    )
    assert "bytesize=1125899906842624) = CUDA_ERROR_OUT_OF_MEMORY" in done.lines[2]
    assert done.lines[3].startswith(done.lines[0].split()[0])


def test_a_launch_is_printed_with_the_kernel_s_name_and_parameters(tandem, recording):
    lines = tandem("trace", "show", "-e", "cuLaunchKernel", recording).out.splitlines()
    (alloc, _, _) = tandem("trace", "show", "-e", "cuMemAlloc", recording).out.splitlines()
    a = re.search(r"dptr=\[(0x[0-9a-f]+)\]", alloc)[1]

    assert len(lines) == 3
    assert "cuLaunchKernel(f=vadd, gridDimX=4, gridDimY=1" in lines[0]
    assert re.search(rf"kernelParams=\[{a}, {a}, 0x[0-9a-f]+, 1024\], extra=NULL", lines[0])
    # 4 blocks of 256 threads, 12 bytes each, at 1 GB/s
    assert lines[0].endswith("{on the GPU 12.29us}")


def test_a_recording_has_the_same_calls_as_were_printed(tandem, recording):
    rows = [
        json.loads(line) for line in tandem("trace", "show", "--json", recording).out.splitlines()
    ]
    printed = tandem("trace", "calls", "--json", "--", sys.executable, "-c", VADD).lines

    assert [row["call"] for row in rows] == [json.loads(line)["call"] for line in printed]
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))


def test_the_table_counts_calls_and_errors(tandem, recording):
    line = tandem("trace", "show", "-c", "--json", recording).out
    rows = {row["call"]: row for row in json.loads(line)["summary"]}

    assert (rows["cuMemAlloc_v2"]["calls"], rows["cuMemAlloc_v2"]["errors"]) == (3, 1)
    assert rows["cuLaunchKernel"]["calls"] == 3
    # 36,864 ns of kernels and a copy of 4,096 bytes at 0.5 GB/s
    assert rows["cuStreamSynchronize"]["total_ns"] == 3 * 12288 + 8192


def test_the_exit_code_is_the_command_s(tandem):
    assert tandem("trace", "calls", "--", "sh", "-c", "exit 7", check=False).code == 7
    assert tandem("trace", "calls", "--", "sh", "-c", "kill -9 $$", check=False).code == 137
    missing = tandem("trace", "calls", "--", "no-such-program", check=False)
    assert (missing.code, missing.err) == (127, "error: command 'no-such-program' not found\n")

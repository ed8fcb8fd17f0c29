"""`tandem trace calls` and `show` on a program that uses cuda.bindings."""

import errno
import json
import os
import re
import signal
import sys

from traced_program import VADD

from tandem.trace.tracer import TracedCommand


def test_calls_are_printed_with_arguments_result_and_duration(tandem):
    done = tandem(
        "trace", "calls", "-e", "trace=alloc,free,query", "--", sys.executable, "-c", VADD
    )

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
    # 4 blocks of 256 threads at 12 bytes each, at 1 GB/s
    assert lines[0].endswith("{on the GPU 12.29us}")


def test_a_recording_has_the_same_calls_as_were_printed(tandem, recording):
    rows = [
        json.loads(line)
        for line in tandem("trace", "show", "--all", "--json", recording).out.splitlines()
    ]
    printed = tandem("trace", "calls", "--all", "--json", "--", sys.executable, "-c", VADD).lines

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


CHILDREN = """
import subprocess, sys
from cuda.bindings import driver as cu
cu.cuInit(0)
subprocess.run([sys.executable, "-c", "from cuda.bindings import driver as cu; cu.cuInit(0)"])
"""
ENDLESS = """
import signal, sys
from gpu import Gpu
gpu = Gpu()
gpu.word(1)
signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
print("going", flush=True)
signal.pause()
"""


def test_children_are_traced_too(tandem):
    lines = tandem("trace", "calls", "-e", "cuInit", "--", sys.executable, "-c", CHILDREN).lines

    assert len({line.split("]")[0] for line in lines}) == 2


def test_an_interrupt_is_the_command_s_and_the_table_comes_after_it(tandem):
    words = ("trace", "calls", "-c", "--", sys.executable, "-c", ENDLESS)
    with tandem.start(*words) as process:
        assert process.stdout.readline() == "going\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 5
    assert re.search(r"^ *[0-9.]+% .* cuMemAlloc_v2$", errors, re.MULTILINE)


def test_a_killed_program_leaves_a_whole_recording(tandem, tmp_path):
    path = tmp_path / "x.trace"
    program = VADD + "\nimport os; os.kill(os.getpid(), 9)\n"

    code = tandem(
        "trace", "calls", "-o", path, "--", sys.executable, "-c", program, check=False
    ).code

    shown = tandem("trace", "show", "-e", "cuMemFree", path)
    assert code == 137
    assert (len(shown.out.splitlines()), shown.err) == (2, "")


def test_a_recording_that_was_cut_is_shown_with_a_warning(tandem, recording, tmp_path):
    path = tmp_path / "cut.trace"
    path.write_bytes(recording.read_bytes()[:-1000])

    shown = tandem("trace", "show", path)

    assert "cuMemAlloc_v2" in shown.out
    assert shown.err == f"tandem: warning: '{path}' ends early; what follows was not recorded\n"


def test_an_export_is_a_trace_of_chrome(tandem, recording, tmp_path):
    path = tmp_path / "x.json"
    tandem("trace", "export", "-o", path, recording)

    rows = json.loads(path.read_text())["traceEvents"]

    on_gpu = [r["name"] for r in rows if r.get("cat") == "gpu"]
    assert on_gpu == ["cuMemcpyHtoDAsync", "vadd", "vadd", "vadd"]
    assert {r["ph"] for r in rows} == {"X", "M"}


def test_no_more_lines_than_the_limit_are_printed(tandem, recording):
    assert len(tandem("trace", "show", "--limit", "2", recording).out.splitlines()) == 2


def test_wrong_words_are_refused_before_the_command_runs(tandem, tmp_path):
    marker = tmp_path / "ran"
    command = ("--", "touch", marker)

    wrong = tandem("trace", "calls", "-e", "trace=cuNothing", *command, check=False)
    nowhere = tandem("trace", "calls", "-o", "/nowhere/x", *command, check=False)

    assert wrong.code == 125
    assert wrong.err.startswith("error: -e trace='cuNothing' is not an intercepted call")
    assert nowhere.code == 125
    assert nowhere.err.startswith("error: cannot write '/nowhere/x': No such file or directory")
    assert not marker.exists()


def test_a_trace_that_cannot_be_kept_ends_and_the_command_does_not(tandem):
    def refuse(_records):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    program = VADD + "\nraise SystemExit(3)\n"
    traced = TracedCommand([sys.executable, "-c", program], tandem.env, device_times=False)

    assert traced.follow(refuse) == 3
    assert traced.failure.errno == errno.ENOSPC


def test_too_small_a_limit_of_files_is_said(tandem):
    done = tandem("trace", "calls", "--", "true", check=False, file_limit_bytes=64 * 1024)

    assert (done.code, done.err) == (
        125,
        "error: no memory for the trace: ftruncate: File too large\n",
    )


def test_a_full_disk_is_said_before_the_command_runs(tandem, tmp_path):
    marker = tmp_path / "ran"
    done = tandem("trace", "calls", "-o", "/dev/full", "--", "touch", marker, check=False)

    assert done.code == 125
    assert "cannot write '/dev/full': No space left on device" in done.err
    assert not marker.exists()

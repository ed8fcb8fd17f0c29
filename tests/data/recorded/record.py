"""Records programs.py on the software GPU: `python tests/data/recorded/record.py [ROLE...]`.

A recording is what the shim wrote: records of 64 bytes (csrc/core/shm_layout.h), oldest first, with
marks among them and ticks in nanoseconds of the attach clock; compressed by LZMA. They are made
anew when what the shim records changes.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parents[1] / "shim"))

from shim_daemon import Attached, FakeDaemon

from tandem import _paths, softgpu
from tandem.demo.image import software_image

ROLES = ("vision", "language", "transformer", "decoder", "loader", "wanderer")
MOST_BYTES = 100 * 1024


def record(role: str, folder: Path) -> bytes:
    """The records of one program, from its first to its last."""
    own = folder / "own.so"
    softgpu.compile_kernels(HERE / "kernels.cu", own)
    command = [sys.executable, str(HERE / "programs.py"), role, software_image(folder), own]
    base = os.environ | {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(folder)}
    env = softgpu.environment(base, folder=folder / "device", clock="real", profile="h200")
    daemon = FakeDaemon(folder)
    child = subprocess.Popen(command, env=env)
    try:
        return b"".join(drain(daemon.attach(hold=True), child))
    finally:
        child.kill()
        child.wait()
        daemon.close()


def drain(job: Attached, child: subprocess.Popen[bytes]) -> list[bytes]:
    """All records until the program ended."""
    job.keep_records()
    job.process.set_gate(hold=False)
    out = []
    while child.poll() is None:
        out += job.records()
    out += job.records()
    dropped = job.snapshot().dropped_records
    if dropped or child.returncode:
        sys.exit(f"{dropped} records lost, exit status {child.returncode}; record again")
    return out


def main() -> None:
    """Make all recordings, or those named on the command line."""
    for role in sys.argv[1:] or ROLES:
        with tempfile.TemporaryDirectory() as folder:
            records = record(role, Path(folder))
        packed = lzma.compress(records, preset=9 | lzma.PRESET_EXTREME)
        if len(packed) > MOST_BYTES:
            sys.exit(f"{role}: {len(packed)} bytes are more than {MOST_BYTES}; let it do less")
        (HERE / f"{role}.xz").write_bytes(packed)
        print(f"{role}: {len(records) // 64} records in {len(packed)} bytes")


if __name__ == "__main__":
    main()

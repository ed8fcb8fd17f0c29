"""The preloaded library that records how a program finds the driver's functions."""

import json
import re
import subprocess
import sys

import pytest
from bench.gpu.figures.asked import unlisted
from bench.gpu.harness import native
from bench.gpu.harness.part import bench
from bench.gpu.parts import frameworks

from tandem import _paths

pytestmark = pytest.mark.slow

BY_CTYPES = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuCtxSynchronize()
driver.cuGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes([0x6B, 0xD5, 0xFB, 0x6C] + [0] * 12))
"""
BY_BINDINGS = "from cuda.bindings import driver; driver.cuInit(0)"
CLOSES_IT = """
import _ctypes, ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
driver.cuInit(0)
_ctypes.dlclose(driver._handle)
"""
LINKED = """
#include <cuda.h>
int main() {
  int count = 0;
  return cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS;
}
"""


@pytest.fixture(scope="module")
def seen(made, tmp_path_factory):
    """Run a command; return what the library says about its only process."""
    folder = tmp_path_factory.mktemp("lookups")
    with bench(where="software", keep=folder, made=made) as it:
        base = it.place.env(it.folder / "gpu") | {
            "LD_PRELOAD": str(native.preloaded(it, "lookups")),
        }

        def run(*command):
            said = folder / str(len(list(folder.iterdir())))
            subprocess.run(command, env=base | {"LOOKUPS_FILE": str(said)}, check=True, timeout=60)
            (answer,) = folder.glob(f"{said.name}.*")
            return json.loads(answer.read_text())

        yield run


def test_a_program_of_ctypes_finds_each_by_dlsym(seen):
    said = seen(sys.executable, "-c", BY_CTYPES)

    assert (said["linked"], said["dlsym"], said["looked_up"]) == (0, 3, 0)
    assert [name for name in said["dlsym_by"] if name.startswith("_ctypes")]
    assert said["export_tables"] == {"6bd5fb6c": 1}


def test_cuda_bindings_finds_one_by_dlsym_and_looks_up_all_others(seen):
    said = seen(sys.executable, "-c", BY_BINDINGS)

    assert (said["linked"], said["dlsym"]) == (0, 1)
    assert said["looked_up"] > 300
    assert said["look_ups"] == sum(said["versions"].values()) == said["flags"]["0"]


def test_a_program_that_closes_the_driver_at_its_end_is_told_of(seen, tmp_path):
    """As the CUDA runtime does. The software GPU's library stays loaded, whoever closes it."""
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }")
    named = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    subprocess.run(["gcc", *named, str(source), "-o", str(library)], check=True)

    said = seen(sys.executable, "-c", CLOSES_IT, str(library))

    assert said["dlsym"] == 1


def test_a_linked_program_has_its_names(seen, tmp_path):
    (tmp_path / "linked.cpp").write_text(LINKED)
    program = tmp_path / "linked"
    include = native.ninja_build.cuda_include()
    driver = _paths.SHIM.parent / "softgpu" / "lib" / "libcuda.so.1"
    command = ["g++", tmp_path / "linked.cpp", "-isystem", include, "-o", program, driver]
    subprocess.run([str(word) for word in command], check=True)

    said = seen(str(program))

    assert (said["linked"], said["dlsym"], said["looked_up"]) == (2, 0, 0)
    assert said["linked_by"] == {"program": 2}


# Graphics functions, or functions in no current header. "" is asked for first, from 12.4 on.
UNLISTED = re.compile(
    r"|cuGL\w+|cuEGL\w+|cuVDPAU\w+|cuGraphics\w*(GL|EGL|Egl|VDPAU)\w+|cuSubgrid\w+|cuProfilerInitialize"
)


def test_the_cuda_runtime_asks_for_nothing_else_that_the_shims_table_lacks(seen):
    """This is NVIDIA's own library, which looks functions up before it refuses a foreign driver."""
    (runtime,) = native.ninja_build.cuda_include().parent.glob("lib*/libcudart.so.*")
    count = (
        f"import ctypes; ctypes.CDLL('{runtime}').cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))"
    )

    said = seen(sys.executable, "-c", count)

    assert (said["linked"], said["dlsym_by"]) == (0, {runtime.name: said["dlsym"]})
    assert len(said["asked"]) > 400
    lacked = unlisted(said["asked"], frameworks.shims_table())
    assert [name for name in lacked if not UNLISTED.fullmatch(name.split(" ")[0])] == []


def test_a_process_without_the_driver_says_nothing(seen):
    with pytest.raises(ValueError, match="not enough values"):
        seen("/bin/true")

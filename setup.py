"""Builds the native parts: tandem._native, libtandem.so and the software GPU.

csrc/ninja_build.py compiles everything; this file only says where each output belongs: beside the
Python sources in an editable install, inside the package in a wheel.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent / "csrc"))

import ninja_build

# build target -> path inside the package tree
PLACES = {
    "native": f"tandem/{ninja_build.targets()['native'].output}",
    "shim": "tandem/libtandem.so",
    "softgpu-cuda": "tandem/softgpu/lib/libcuda.so.1",
    "softgpu-nvml": "tandem/softgpu/lib/libnvidia-ml.so.1",
    "softgpu-device": "tandem/softgpu/bin/tandem-softgpu",
    "softgpu-mps": "tandem/softgpu/bin/nvidia-cuda-mps-control",
}


class NativeBuild(build_ext):
    """Runs ninja once for all targets, then copies each output to its place."""

    def run(self) -> None:
        """Build every target; a compiler error ends the install with the compiler's message."""
        portable = ninja_build.PORTABLE_CXX in os.environ
        outputs = ninja_build.build(list(PLACES), "portable" if portable else "release")
        base = Path("client") if self.inplace else Path(self.build_lib)
        for name, place in PLACES.items():
            destination = base / place
            destination.parent.mkdir(parents=True, exist_ok=True)
            # A running process may have the old file mapped: replace the file, never overwrite it.
            fresh = destination.with_name(destination.name + ".new")
            shutil.copy2(outputs[name], fresh)
            fresh.replace(destination)

    def get_outputs(self) -> list[str]:
        """Paths in the build tree, for the wheel's record."""
        return [str(Path(self.build_lib) / place) for place in PLACES.values()]

    def get_output_mapping(self) -> dict[str, str]:
        """Build-tree path -> source-tree path, for editable wheels."""
        return {str(Path(self.build_lib) / p): f"client/{p}" for p in PLACES.values()}


class WholeSource(sdist):
    """Puts the whole checkout into the source archive, including tests and documentation."""

    FOLDERS = ("bench", "client", "csrc", "daemon", "docs", "packaging", "proto", "shim", "tests")
    MADE = ("*.so", "*.so.1", "*.pyc", "*/softgpu/bin/*", "*.egg-info/*")  # created by a build

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Add the checkout to what setuptools finds by itself, which is only Python."""
        found = (path for folder in self.FOLDERS for path in sorted(Path(folder).rglob("*")))
        ours = [p for p in found if p.is_file() and not any(p.match(made) for made in self.MADE)]
        super().make_release_tree(base_dir, [*{*files, "Makefile", *map(str, ours)}])


setup(
    # One nominal extension makes setuptools treat the wheel as platform-specific.
    ext_modules=[Extension("tandem._native", sources=[])],
    cmdclass={"build_ext": NativeBuild, "sdist": WholeSource},
)

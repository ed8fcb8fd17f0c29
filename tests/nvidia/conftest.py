"""NVIDIA's own libraries, if they are at hand: `make nvidia` fetches them, no card is needed."""

import os
from pathlib import Path

import pytest

FETCHED = Path(__file__).parents[2] / "build" / "nvidia"
VARIABLE = "TANDEM_NVIDIA_LIBRARIES"


@pytest.fixture(scope="session")
def libraries():
    """The folder with NVIDIA's libcuda.so.1 and libnvidia-ml.so.1."""
    named = os.environ.get(VARIABLE)
    folders = [Path(named).absolute()] if named else sorted(FETCHED.glob("*"))
    for folder in folders:
        if (folder / "libcuda.so.1").exists():
            return folder
    if named:
        pytest.fail(f"{VARIABLE}={named}: no libcuda.so.1 in that folder")
    pytest.skip(f"NVIDIA's libraries are not here: `make nvidia`, or {VARIABLE}=FOLDER")


@pytest.fixture(scope="session")
def version(libraries):
    """The version of the driver that the libraries belong to, such as 555.58.02."""
    return (libraries / "libcuda.so.1").resolve().name.removeprefix("libcuda.so.")


@pytest.fixture(scope="session")
def bare(libraries, clean_env):
    """The environment of a program that finds the libraries."""
    return {**clean_env, "LD_LIBRARY_PATH": str(libraries)}

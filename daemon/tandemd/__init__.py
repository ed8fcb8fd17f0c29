"""The Tandem daemon: decides which jobs compute on a shared GPU, and when."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gpu-tandem")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"

"""What the client's tests need from the machine."""

import pytest

from tandem import _paths


@pytest.fixture
def shim(tmp_path, monkeypatch):
    """A file in place of the shim, which nothing loads."""
    library = tmp_path / "libtandem.so"
    library.touch()
    monkeypatch.setattr(_paths, "SHIM", library)
    return library

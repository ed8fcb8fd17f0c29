"""What tests of the client have of the machine."""

import pytest

from tandem import _paths


@pytest.fixture
def shim(tmp_path, monkeypatch):
    """A file in the library's place, which nobody loads."""
    library = tmp_path / "libtandem.so"
    library.touch()
    monkeypatch.setattr(_paths, "SHIM", library)
    return library

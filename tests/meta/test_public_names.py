"""The names that `import tandem` offers."""

import inspect
import re
from types import ModuleType

import pytest

import tandem
from tandem._changes import Changes


def test_all_is_the_sorted_list_of_public_names():
    public = {name for name in dir(tandem) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(tandem, name)).__name__ == "module"}

    assert tandem.__all__ == sorted(public - modules - {"TYPE_CHECKING"})


def test_every_public_name_can_be_loaded_and_says_what_it_is():
    for name in tandem.__all__:
        assert getattr(tandem, name).__doc__, name


def test_names_loaded_later_are_all_public():
    assert set(tandem._LATER) <= set(tandem.__all__)


def test_modules_that_the_docs_name_are_there(docs):
    texts = [file.read_text() for file in (docs / "python.md", docs / "software-gpu.md")]
    named = {name for text in texts for name in re.findall(r"`tandem\.([a-z]+)[`.]", text)}

    assert {"softgpu", "torch", "waves"} <= named
    for name in named - set(tandem.__all__):
        assert isinstance(getattr(tandem, name), ModuleType), name
        assert name in dir(tandem)


def test_a_name_that_is_none_is_no_attribute():
    assert not hasattr(tandem, "tensorflow")


def test_docs_python_names_every_public_name(docs):
    text = (docs / "python.md").read_text()

    assert [name for name in tandem.__all__ if f"`{name}" not in text] == []


@pytest.fixture
def methods(docs):
    """The methods of a `Client` in docs/python.md, each with its parameters as they stand there."""
    section = (docs / "python.md").read_text().partition("\n## `Client`")[2].partition("\n### ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return dict(re.findall(r"`(\w+)\(([^`]*)\)`", " ".join(rows)))


def test_docs_python_names_every_method_of_a_client(methods):
    functions = inspect.getmembers(tandem.Client, inspect.isfunction)
    public = {name for name, _ in functions if not name.startswith("_")}

    assert set(methods) == public - {"close"}


def test_docs_python_names_all_that_can_be_set(methods):
    assert re.findall(r"(\w+)=", methods["set"]) == list(Changes.__annotations__)

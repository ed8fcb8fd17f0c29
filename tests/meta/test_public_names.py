"""What `import tandem` offers."""

import re
from types import ModuleType

import tandem


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

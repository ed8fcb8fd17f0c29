import ast
import inspect
import types
from pathlib import Path

import pytest

import tandem
from tandem import _native

STUB = ast.parse((Path(tandem.__file__).parent / "_native.pyi").read_text())


def declared() -> dict[str, set[str]]:
    """Maps each class or function of the stub to its public members."""
    names: dict[str, set[str]] = {}
    for node in STUB.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = set()
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = set()
        elif isinstance(node, ast.ClassDef):
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            fields = {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
            names[node.name] = {m for m in members | fields if not m.startswith("_")}
    return names


def test_the_module_has_exactly_what_its_stub_declares() -> None:
    public = {name for name in dir(_native) if not name.startswith("_")}

    assert public == set(declared())


@pytest.mark.parametrize("name", [n for n, members in declared().items() if members])
def test_each_class_has_exactly_what_its_stub_declares(name: str) -> None:
    members = {m for m in vars(getattr(_native, name)) if not m.startswith("_")}

    assert members == declared()[name]


@pytest.mark.parametrize("name", [n for n in declared() if inspect.isclass(getattr(_native, n))])
def test_every_class_is_final(name: str) -> None:
    with pytest.raises(TypeError, match=r"not an acceptable base type|cannot extend"):
        types.new_class("Derived", (getattr(_native, name),))

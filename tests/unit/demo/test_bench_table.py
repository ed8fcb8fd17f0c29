import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLE = ast.parse((ROOT / "bench/__main__.py").read_text())


def bench_names():
    """The keys of BENCHES, without importing: the bench modules need the built package."""
    for node in TABLE.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "BENCHES":
            return list(ast.literal_eval(node.value))
    raise AssertionError("bench/__main__.py has no table BENCHES")


@pytest.mark.parametrize("name", bench_names())
def test_every_bench_has_a_run_function_and_a_line_in_the_docs(name):
    module = ast.parse((ROOT / f"bench/{name}.py").read_text())

    assert "run" in {n.name for n in module.body if isinstance(n, ast.FunctionDef)}
    assert f"| `{name}` |" in (ROOT / "docs/benchmarks.md").read_text()


def test_every_gpu_part_is_a_module_and_has_a_line_in_the_docs():
    script = (ROOT / "bench/gpu/run.sh").read_text()
    parts = next(line for line in script.splitlines() if line.startswith("parts=")).split('"')[1]

    for part in parts.split():
        assert (ROOT / f"bench/gpu/parts/{part}.py").is_file()
        assert f"| `{part}` |" in (ROOT / "docs/benchmarks.md").read_text()

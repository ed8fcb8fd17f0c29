"""The programs of docs/tutorial.md, as a newcomer copies them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/tutorial.md"
NAMES = ("work.py", "train.py", "serve.py")  # in this order


@pytest.fixture
def lab(tmp_path):
    blocks = re.findall(r"\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in zip(NAMES, blocks, strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "line"),
    [
        (["train.py", "8"], r"\d+\.\d iterations/s\n"),
        (["serve.py"], r"p50 \d+\.\d ms, p99 \d+\.\d ms\n"),
    ],
)
def test_a_program_of_the_tutorial_prints_what_that_shows(lab, gpu, program, line):
    env = gpu.env(PYTHONPATH=str(PAGE.parents[1] / "client"))

    with subprocess.Popen(
        [sys.executable, *program], env=env, cwd=lab, stdout=subprocess.PIPE, text=True
    ) as running:
        printed = running.stdout.readline()
        running.kill()

    assert re.fullmatch(line, printed)

"""The program in docs/software-gpu.md, as a newcomer copies it."""

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/software-gpu.md"


def fenced(language):
    """Return the first code block of that language, without its fences."""
    return PAGE.read_text().split(f"\n```{language}\n", 1)[1].split("```", 1)[0]


@pytest.mark.slow
def test_the_program_in_the_docs_prints_what_they_say(tmp_path, gpu):
    (tmp_path / "scale.cu").write_text(fenced("cpp"))
    (tmp_path / "program.py").write_text(fenced("python"))
    command, answer = fenced("console").splitlines()

    env = gpu.env(PYTHONPATH=str(PAGE.parents[1] / "client"))
    program = [sys.executable, "program.py"]
    done = subprocess.run(
        program, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert len([line for line in fenced("python").splitlines() if line]) == 16
    assert command.endswith("-- python program.py")
    assert (done.stdout.strip(), done.stderr) == (answer, "")

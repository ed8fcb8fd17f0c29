"""docs/environment.md names the variables that are read or set, and no others.

Our own variables are found as literals, wherever they are. Those of other projects are found by the
families of their names, and where they are read by name.
"""

import re

import click
import pytest

from tandem.cli.__main__ import COMMANDS, load
from tandem.cli._softgpu_variables import KNOWN

OURS = re.compile(r'"(_?TANDEM_[A-Z_]*[A-Z])"')
FAMILIES = re.compile(
    r'"((?:CUDA_(?:MPS|VISIBLE|INJECTION\d+)|JUPYTER|NVIDIA|PYTORCH|SLURM|TORCHELASTIC|XDG)_[A-Z_]*[A-Z]'
    r'|CUDA_DEVICE_[A-Z_]*[A-Z](?:_0)?|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|RUNTIME_DIRECTORY)"'
)
READ = re.compile(
    r'(?:getenv|text_of|is_on|\b(?:environ|environment|env|job|present)(?:\.get)?)[(\[]"([A-Z_]+)"'
    r'|"([A-Z_]+)" (?:not )?in (?:os\.environ|environ|env)\b'
)
ROW = re.compile(r"^\| (`[^|]*) \|(.*)\|$", re.MULTILINE)
SOFTGPU = "TANDEM_SOFTGPU_"


@pytest.fixture(scope="module")
def texts(request):
    """The sources of each part, as one text."""
    root = request.config.rootpath

    def text_of(folder, *kinds):
        files = sorted(root.glob(f"{folder}/**/*"))
        return "\n".join(file.read_text() for file in files if file.suffix in kinds)

    return {
        "shim": text_of("shim", ".cpp", ".h"),  # without its generators
        "client": text_of("client", ".py"),
        "daemon": text_of("daemon", ".py"),
        "csrc": text_of("csrc", ".cpp", ".h", ".py"),
    }


@pytest.fixture
def rows(docs):
    """The page's rows for each variable; some variables have two."""
    found = {}
    for names, rest in ROW.findall((docs / "environment.md").read_text()):
        for name in re.findall(r"`([A-Z_0-9]+)`", names):
            found.setdefault(name, []).append(rest)
    return found


def ours(text):
    return set(OURS.findall(text))


def others(text):
    read = {name for pair in READ.findall(text) for name in pair if name}
    return {name for name in read | set(FAMILIES.findall(text)) if "TANDEM_" not in name}


def named_in(texts):
    everything = {name for text in texts.values() for name in ours(text)}
    foreign = {name for part in ("shim", "client", "daemon") for name in others(texts[part])}
    return {name for name in everything | foreign if not name.startswith(SOFTGPU)}


def test_every_variable_is_on_the_page(texts, rows):
    assert sorted(named_in(texts) - set(rows)) == []


def test_no_variable_is_on_the_page_that_nothing_reads_or_sets(texts, rows):
    assert sorted(set(rows) - named_in(texts)) == []


def test_the_page_says_what_the_library_reads(texts, rows):
    """And only that: whoever sets a variable for a program looks here first."""
    read = ours(texts["shim"]) | others(texts["shim"])
    said = {name for name, rests in rows.items() if any("library" in rest for rest in rests)}

    assert said == read


def commands():
    stack = [load(verb) for verb in COMMANDS.values()]
    while stack:
        command = stack.pop()
        stack += command.commands.values() if isinstance(command, click.Group) else []
        yield command


def test_options_that_say_the_same_are_beside_their_variables(rows):
    for command in commands():
        for param in command.params:
            if param.envvar and not param.envvar.startswith(SOFTGPU):
                said = " ".join(rows[param.envvar])
                for flag in (*param.opts, *param.secondary_opts):
                    assert f"`{flag}`" in said, param.envvar


def test_the_software_gpu_has_a_page_of_its_own(texts, docs):
    page = set(re.findall(rf"{SOFTGPU}[A-Z_]*[A-Z]", (docs / "software-gpu.md").read_text()))
    read = {name for name in ours(texts["csrc"]) | ours(texts["client"]) if SOFTGPU in name}

    assert page == read
    assert read == KNOWN

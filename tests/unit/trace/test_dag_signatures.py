"""Declared parameters of kernels whose names carry no types."""

import pytest
from click.testing import CliRunner
from programs import ONE, TWO, Program
from recordings import file_of, recording_of

from tandem.cli.dag import dag
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.signatures import load
from tandem.errors import NotFoundError, UsageError

A, B, C, BYTES = 0x7F00_0000_0000, 0x7F00_0010_0000, 0x7F00_0020_0000, 4096
DECLARED = {"copy": "const float* from, float* to, int n"}


@pytest.fixture
def copies():
    """Three allocations; two launches copy the first to the others."""
    made = Program().function(0xF0, b"copy", (8, 8, 4))
    for address in (A, B, C):
        made.on("cuMemAlloc_v2", 9, address, BYTES)
    for stream, to in ((ONE, B), (TWO, C)):
        made.run(stream, function=0xF0, parameters=(A, to, 7))
    return made


@pytest.mark.parametrize(("signatures", "independent"), [(DECLARED, True), ({}, False)])
def test_two_kernels_that_are_declared_to_read_are_independent(copies, signatures, independent):
    graph = graph_of(from_trace(recording_of(copies), "x.trace", signatures))

    assert graph.dag.independent(3, 4) is independent


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("const float*, float*", "'copy' takes 3 parameters and is declared with 2"),
        ("const float*, float*, int*", "parameter 3 of kernel 'copy' has 4 bytes"),
        ("const float*, flaot<3>", "kernel 'copy': parameter 2 of .* is not understood"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(copies, text, fault):
    with pytest.raises(UsageError, match=fault):
        from_trace(recording_of(copies), "x.trace", {"copy": text})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("copy = 3", "kernel 'copy' is 3, and not a C parameter list"),
        ("copy = 'int,,'", "kernel 'copy': parameter 2 of 'int,,'"),
        ("copy", "is not valid TOML"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, text, fault):
    (tmp_path / "kernels.toml").write_text(text)

    with pytest.raises(UsageError, match=fault):
        load(tmp_path / "kernels.toml")
    with pytest.raises(NotFoundError, match="there is no file"):
        load(tmp_path / "other.toml")


def test_the_command_takes_a_file_and_tells_what_in_it_is_not_launched(copies, tmp_path):
    (tmp_path / "x.trace").write_bytes(file_of(copies))
    (tmp_path / "kernels.toml").write_text(f'copy = "{DECLARED["copy"]}"\n"other" = "int"\n')
    words = ["stats", str(tmp_path / "x.trace")]

    without = CliRunner().invoke(dag, words)
    declared = CliRunner().invoke(dag, [*words, "--signatures", str(tmp_path / "kernels.toml")])

    assert "2 operations may touch more memory than is known" in without.stderr
    assert "may touch more memory" not in declared.stderr
    assert "no kernel 'other' is launched" in declared.stderr
    assert "'copy'" not in declared.stderr

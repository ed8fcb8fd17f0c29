"""What older builds read in messages and pages stays where it is, or the version is raised."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import generate_abi
from generate_abi import CORE, NAME, Listing, breaks, compiled, read

pytestmark = pytest.mark.slow  # each of them compiles something


@pytest.fixture
def changed(tmp_path: Path):
    """What the compiler makes of the headers after some of their text has been replaced."""

    def change(header: str, *exchanges: tuple[str, str]) -> Listing:
        headers = Path(shutil.copytree(CORE, tmp_path / "core"))
        text = (headers / header).read_text()
        for old, new in exchanges:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        # The headers' own assertions on sizes would stop the compiler first.
        text = text.replace("static_assert(", "static_assert(true || ")
        (headers / header).write_text(text)
        return compiled(headers)

    return change


def test_nothing_that_the_committed_listing_has_was_changed():
    assert breaks(read(CORE / NAME), compiled()) == []


@pytest.mark.parametrize(
    ("header", "old", "new", "broken"),
    [
        pytest.param(
            "wire.h",
            "  uint32_t layout_version;\n  uint32_t clock;  // ClockKind of",
            "  uint32_t clock;\n  uint32_t layout_version;  // ",
            ["wire::Welcome.layout_version at 16", "wire::Welcome.clock at 20"],
            id="fields change places",
        ),
        pytest.param(
            "shm_layout.h",
            "std::atomic<uint32_t> wait_round;",
            "std::atomic<uint16_t> wait_round;",
            ["shm::StateMemory.wait_round at 56: u32 became at 56: u16"],
            id="a field gets narrower",
        ),
        pytest.param(
            "shm_layout.h",
            "std::atomic<uint64_t> begun_phases;",
            "uint64_t reserved0;",
            ["shm::StateMarks.begun_phases at 48: u64 became nothing"],
            id="a field vanishes",
        ),
        pytest.param(
            "wire.h",
            "kShared = 9,\n  kUses = 10",
            "kShared = 10,\n  kUses = 9",
            ["wire::Type::kShared 9 became 10", "wire::Type::kUses 10 became 9"],
            id="values change their meaning",
        ),
        pytest.param(
            "wire.h",
            "kFeatureSwap = 32",
            "kFeatureSwap = 16",
            ["wire::kFeatureSwap 32 became 16"],
            id="a flag gets another bit",
        ),
        pytest.param(
            "wire.h",
            "kReasonBytes = 512",
            "kReasonBytes = 160",
            ["wire::kReasonBytes", "wire::Refused 536", "wire::Refused.reason", "wire::Registered"],
            id="a text gets shorter",
        ),
        pytest.param(
            "shm_layout.h",
            "kSlotCount = 256",
            "kSlotCount = 512",
            ["shm::kRingHeadersOffset", "shm::kRingsOffset", "shm::kStateBytesFirst"],
            id="what follows in a page moves",
        ),
        pytest.param(
            "trace_layout.h",
            "kTraceRings = 1024",
            "kTraceRings = 2048",
            ["trace::kTraceRings", "trace::kTraceDataOffset"],
            id="a trace's rings move",
        ),
    ],
)
def test_a_change_that_older_builds_would_not_see_is_told(
    changed, header: str, old: str, new: str, broken: list[str]
):
    found = breaks(read(CORE / NAME), changed(header, (old, new)))

    assert all(any(line.startswith(each) for line in found) for each in broken), found


def test_the_same_change_passes_under_another_version(changed):
    before = read(CORE / NAME)
    flag = ("kFeatureSwap = 32", "kFeatureSwap = 16")

    after = changed("wire.h", flag, ("kProtocolVersion = 1", "kProtocolVersion = 2"))

    assert breaks(before, after) == []
    assert breaks(after, before), "and no version goes down"


@pytest.mark.parametrize(
    ("header", "old", "new", "fresh"),
    [
        (
            "wire.h",
            "  uint64_t reserved[3];",
            "  uint64_t more;\n  uint64_t reserved[2];",
            "Welcome.more",
        ),
        ("wire.h", "kHostBack = 15,", "kHostBack = 15, kMore = 16,", "Type::kMore"),
        (
            "wire.h",
            "  uint32_t idle_release_s;  // idle",
            "  uint32_t idle_release_s;\n  uint64_t more;  // idle",
            "Hello.more",
        ),
        ("wire.h", "  char told[kReasonBytes];", "  char told[kReasonBytes * 2];", "Registered"),
    ],
)
def test_growing_breaks_nothing_and_is_another_listing(
    changed, header: str, old: str, new: str, fresh: str
):
    before = read(CORE / NAME)

    after = changed(header, (old, new))

    assert breaks(before, after) == []
    assert after.get(f"wire::{fresh}") != before.get(f"wire::{fresh}")


def test_a_listing_that_would_break_older_builds_is_not_written(
    changed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    broken = changed("wire.h", ("kFeatureSwap = 32", "kFeatureSwap = 16"))
    monkeypatch.setattr(generate_abi, "compiled", lambda: broken)
    monkeypatch.setattr("sys.argv", ["generate_abi.py", "--output", str(tmp_path)])

    assert generate_abi.main() == 1
    assert "wire::kFeatureSwap 32 became 16" in capsys.readouterr().err
    assert not (tmp_path / NAME).exists()

"""Cutting a GPU anew: a cut that fails leaves the GPU as it was."""

import sys

import pytest
from fake_nvml import FakeNvml

from tandem.errors import AccessError, CapacityError, StateError
from tandemd.core.space.layouts import parse_layout
from tandemd.edges.mig import MigLayouts

TOO_MUCH = "0=3g.71gb,3g.71gb,1g.18gb"


@pytest.fixture
def cutting(monkeypatch):
    """Cuts the GPU of a fake NVML."""

    def cut(nvml, layout):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return MigLayouts().apply(parse_layout(layout))

    return cut


@pytest.fixture
def planning(monkeypatch):
    """Return what cuts the GPU of a fake NVML."""

    def make(nvml):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return MigLayouts()

    return make


@pytest.mark.parametrize("computes", [(), ((3, 0),), ((1, 0), (2, 1)), ((1, 2),)])
def test_compute_instances_come_back_as_they_were(cutting, computes):
    nvml = FakeNvml()
    nvml.have("1g.18gb", 6, (1, 0))
    nvml.have("3g.71gb", 0, *computes)
    before = nvml.layout()

    with pytest.raises(CapacityError, match=r"1g.18gb cannot be created.*as it was before"):
        cutting(nvml, TOO_MUCH)

    assert nvml.layout() == before


def test_compute_instances_beside_one_in_use_come_back(cutting):
    nvml = FakeNvml()
    instance = nvml.have("3g.71gb", 4, (1, 0), (1, 1), (1, 2))
    instance.computes[1].is_used = True
    before = nvml.layout()

    with pytest.raises(StateError, match=r"it is in use.*as it was before"):
        cutting(nvml, "0=7g.141gb")

    assert nvml.layout() == before
    assert instance in nvml.instances


@pytest.mark.parametrize(("mode", "layout"), [(0, "0=3g.71gb"), (1, "0=off")])
def test_a_mode_that_waits_for_a_reset_is_not_left_waiting(cutting, mode, layout):
    nvml = FakeNvml(mode=mode, waits_for_reset=True)
    if mode:
        nvml.have("3g.71gb", 0, (1, 0), (2, 1))
    before = nvml.layout()

    with pytest.raises(StateError, match=rf"-mig {1 - mode}, .* --gpu-reset.*as it was before"):
        cutting(nvml, layout)

    assert nvml.mode == [mode, mode]
    assert nvml.layout() == before


def test_one_that_the_driver_does_not_let_in_is_told_so(cutting):
    with pytest.raises(AccessError, match=r"only root.*as it was before"):
        cutting(FakeNvml(mode=0, is_root=False), "0=3g.71gb")


def test_mig_that_is_off_is_turned_off_again_where_a_layout_does_not_fit(cutting):
    nvml = FakeNvml(mode=0)

    with pytest.raises(CapacityError, match=r"as it was before"):
        cutting(nvml, TOO_MUCH)

    assert nvml.mode == [0, 0]
    assert nvml.instances == []


def test_what_is_off_already_stays_off(cutting):
    assert cutting(FakeNvml(mode=0), "0=off").turned == ""


def test_what_does_not_fit_is_refused_before_anything_is_destroyed(planning):
    nvml = FakeNvml(tells_places=True)
    nvml.have("3g.71gb", 0, (3, 0))
    before = nvml.instances.copy()
    why = rf"'{TOO_MUCH}' does not fit: 3g.71gb,3g.71gb does, and leaves no place for 1g.18gb"

    with pytest.raises(CapacityError, match=why):
        planning(nvml).plan(parse_layout(TOO_MUCH))
    with pytest.raises(CapacityError, match=why):
        planning(nvml).apply(parse_layout(TOO_MUCH))

    assert nvml.instances == before


def test_what_is_beside_others_in_any_order_is_made_where_there_is_room(planning):
    nvml = FakeNvml(tells_places=True)
    layout = parse_layout("0=1g.18gb,1g.18gb,1g.18gb,1g.18gb,3g.71gb")
    nvml.places_last = True  # by itself it places instances where others would need the room

    planned = planning(nvml).plan(layout)
    done = planning(nvml).apply(layout)

    assert [str(part) for part in planned.created] == ["1g.18gb"] * 4 + ["3g.71gb"]
    assert sorted(part.profile for part in done.created) == ["1g.18gb"] * 4 + ["3g.71gb"]
    assert all(part.name.startswith("0:") for part in done.created)
    assert (planned.is_done, done.is_done) == (False, True)

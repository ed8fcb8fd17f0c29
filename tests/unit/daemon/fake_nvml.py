# ruff: noqa: N802, N815  these are NVML's names
"""An NVML whose GPU can have several compute instances in one GPU instance.

It follows NVML's reference, "Multi Instance GPU Management"; the software GPU's NVML knows only
whole instances.
"""

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml

PROFILES = {"1g.18gb": (0, 1, range(7)), "3g.71gb": (2, 4, (0, 4)), "7g.141gb": (4, 8, (0,))}
SLICES = {0: 1, 1: 2, 2: 3, 4: 7}  # compute slices, by profile number


@dataclass(eq=False)
class Compute:
    instance: "Instance"
    profile: int
    start: int
    is_used: bool = False

    @property
    def slices(self):
        return set(range(self.start, self.start + SLICES[self.profile]))


@dataclass(eq=False)
class Instance:
    id: int
    profile: int
    start: int
    width: int
    computes: list[Compute] = field(default_factory=list)

    @property
    def slices(self):
        return set(range(self.start, self.start + self.width))


def fill(out, count, found):
    count._obj.value = len(found)
    for place, one in enumerate(found):
        out[place] = one


def width_of(profile):
    return next(width for own, width, _ in PROFILES.values() if own == profile)


def first_free(starts, width, taken):
    free = [at for at in starts if not taken & set(range(at, at + width))]
    if not free:
        raise pynvml.NVMLError_InsufficientResources
    return free[0]


class FakeNvml:
    """One GPU that supports MIG; attributes that are missing here come from pynvml."""

    c_nvmlGpuInstance_t = c_nvmlComputeInstance_t = ctypes.py_object

    def __init__(self, *, mode=1, waits_for_reset=False, is_root=True, tells_places=False):
        self.mode = [mode, mode]
        self.waits_for_reset = waits_for_reset
        self.is_root = is_root
        self.tells_places = tells_places
        self.places_last = False
        self.instances = []

    def __getattr__(self, name):
        return getattr(pynvml, name)

    def have(self, name, start, *computes):
        """Creates an instance beforehand; `computes`: (slices, start) of each compute instance."""
        number, width, _ = PROFILES[name]
        instance = Instance(len(self.instances) + 1, number, start, width)
        by_slices = {slices: number for number, slices in SLICES.items()}
        instance.computes = [Compute(instance, by_slices[n], at) for n, at in computes]
        self.instances.append(instance)
        return instance

    def layout(self):
        """Describe the GPU's cut, so that two cuts can be compared."""
        return sorted(
            (one.profile, one.start, sorted((SLICES[c.profile], c.start) for c in one.computes))
            for one in self.instances
        )

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetIndex(self, device):
        return device

    def nvmlDeviceGetMigMode(self, device):
        return list(self.mode)

    def nvmlDeviceSetMigMode(self, device, mode):
        if not self.is_root:
            raise pynvml.NVMLError_NoPermission
        self.mode = [self.mode[0] if self.waits_for_reset else mode, mode]

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device, number):
        for name, (own, _, starts) in PROFILES.items():
            if own == number:
                return SimpleNamespace(
                    id=own, name=f"MIG {name}", sliceCount=SLICES[own], instanceCount=len(starts)
                )
        raise pynvml.NVMLError_NotSupported

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, device, profile, out, count):
        if not self.tells_places:
            raise pynvml.NVMLError_FunctionNotFound
        _, width, starts = next(one for one in PROFILES.values() if one[0] == profile)
        count._obj.value = len(starts)
        for place, start in enumerate(starts if out is not None else ()):
            out[place].start, out[place].size = start, width

    def nvmlDeviceGetGpuInstances(self, device, profile, out, count):
        if not self.mode[0]:
            raise pynvml.NVMLError_NotSupported
        fill(out, count, [one for one in self.instances if one.profile == profile])

    def nvmlGpuInstanceGetInfo(self, instance):
        placement = SimpleNamespace(start=instance.start, size=instance.width)
        return SimpleNamespace(id=instance.id, placement=placement)

    def nvmlDeviceCreateGpuInstance(self, device, profile):
        starts = next(starts for own, _, starts in PROFILES.values() if own == profile)
        return self._cut(profile, starts[::-1] if self.places_last else starts)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device, profile, placement):
        if placement._obj.size != width_of(profile):
            raise pynvml.NVMLError_InvalidArgument
        return self._cut(profile, [placement._obj.start])

    def _cut(self, profile, starts):
        width = width_of(profile)
        taken = set().union(*(one.slices for one in self.instances))
        start = first_free(starts, width, taken)
        number = 1 + max((one.id for one in self.instances), default=0)
        self.instances.append(Instance(number, profile, start, width))
        return self.instances[-1]

    def nvmlGpuInstanceDestroy(self, instance):
        if instance.computes:
            raise pynvml.NVMLError_InUse
        self.instances.remove(instance)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, instance, number, engines, version):
        size, most = SLICES.get(number, 8), SLICES[instance.profile]
        if size > most:
            raise pynvml.NVMLError_NotSupported
        return SimpleNamespace(id=number, sliceCount=size, instanceCount=most // size)

    def nvmlGpuInstanceGetComputeInstances(self, instance, profile, out, count):
        fill(out, count, [one for one in instance.computes if one.profile == profile])

    def nvmlComputeInstanceGetInfo_v2(self, compute):
        placement = SimpleNamespace(start=compute.start, size=SLICES[compute.profile])
        return SimpleNamespace(placement=placement)

    def nvmlGpuInstanceCreateComputeInstance(self, instance, profile):
        starts = range(SLICES[instance.profile] - SLICES[profile] + 1)
        self._make(instance, profile, starts)

    def nvmlGpuInstanceCreateComputeInstanceWithPlacement(self, instance, profile, placement):
        assert placement._obj.size == SLICES[profile]
        self._make(instance, profile, [placement._obj.start])

    def _make(self, instance, profile, starts):
        taken = set().union(*(one.slices for one in instance.computes))
        start = first_free(starts, SLICES[profile], taken)
        instance.computes.append(Compute(instance, profile, start))

    def nvmlComputeInstanceDestroy(self, compute):
        if compute.is_used:
            raise pynvml.NVMLError_InUse
        compute.instance.computes.remove(compute)

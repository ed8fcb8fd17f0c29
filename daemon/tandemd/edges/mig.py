"""Changes the MIG layout of a GPU through NVML: completely, or it is restored to what it was.

A profile in NVML has a number (a place in a table), an id (what instances are created from) and a
name. A new GPU instance gets one compute instance of its whole size; a restored one gets those that
it had. See NVIDIA's "MIG User Guide" and NVML's reference, "Multi Instance GPU Management".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from tandem.errors import AccessError, CapacityError, NotFoundError, StateError, UsageError
from tandemd.core.space.layouts import Cut, Layout, Part, Place, arranged, fitting

_NAME_PREFIX = "MIG "  # of profiles

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    name: str
    id: int
    slices: int  # of compute
    most: int  # instances of it
    places: tuple[Place, ...]  # possible for such an instance; none: the driver does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute:
    profile: int  # its id
    start: int  # its first slice, within its GPU instance
    size: int  # slices
    handle: object = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    profile: _Profile
    number: int
    place: Place
    computes: tuple[_Compute, ...]
    handle: object

    @property
    def identity(self) -> tuple[int, int, int]:
        """Return what identifies the instance across handles."""
        return self.number, self.profile.id, self.place.start


_Wanted = tuple[_Profile, Place | None]


class MigLayouts:
    """Changes layouts. For one thread at a time."""

    def __init__(self) -> None:
        """Initialise NVML.

        Raises:
            StateError: there is no driver, or it does not answer.
        """
        try:
            import pynvml
        except ImportError as error:
            raise StateError("NVML's Python module is missing; pip install nvidia-ml-py") from error
        self._nvml = pynvml
        with self._errors("NVML does not start"):
            pynvml.nvmlInit()

    def users(self, layout: Layout) -> tuple[int, ...]:
        """Return the pids of processes on the GPU, or on any of its instances.

        Raises:
            NotFoundError: there is no such GPU.
            StateError: the driver does not say.
        """
        device = self._device(layout.gpu)
        nvml = self._nvml
        with self._errors(f"cannot find out who uses gpu {layout.gpu}"):
            handles = [device, *self._mig_devices(device)]
            running = [nvml.nvmlDeviceGetComputeRunningProcesses(handle) for handle in handles]
            return tuple(sorted({int(process.pid) for found in running for process in found}))

    def uuid(self, layout: Layout) -> str:
        """Return the UUID of the layout's GPU, which may be named by its index.

        Raises:
            NotFoundError: there is no such GPU.
            StateError: the driver does not say.
        """
        device = self._device(layout.gpu)
        with self._errors(f"cannot find out the uuid of gpu {layout.gpu}"):
            raw = self._nvml.nvmlDeviceGetUUID(device)
        return raw.decode() if isinstance(raw, bytes) else str(raw)

    def plan(self, layout: Layout) -> Cut:
        """Return what `apply` would do.

        Raises:
            NotFoundError: there is no such GPU.
            UsageError: a profile does not exist, or is wanted more often than possible.
            CapacityError: the instances do not fit together.
            StateError: the GPU has no MIG, or the driver does not answer.
        """
        device = self._device(layout.gpu)
        is_on = self._is_on(device, layout.gpu)
        self._wanted(device, layout)
        instances = self._instances(device) if is_on else []
        turned = "" if is_on == bool(layout.profiles) else "on" if layout.profiles else "off"
        return Cut(
            destroyed=tuple(_part(self._index(device), one) for one in instances),
            created=tuple(Part(profile=name) for name in layout.profiles),
            turned=turned,
        )

    def apply(self, layout: Layout) -> Cut:
        """Cut the GPU into this layout; if that fails, restore it as it was before.

        Raises:
            AccessError: the driver does not let this process do it.
            CapacityError: the layout does not fit on the GPU, which is as it was before.
            StateError: the GPU is in use, has no MIG, or cannot be restored; the text then lists
                its instances.
            UsageError: as `plan`.
        """
        planned = self.plan(layout)
        device = self._device(layout.gpu)
        wanted = self._wanted(device, layout)
        before = self._instances(device) if self._is_on(device, layout.gpu) else []
        try:
            if planned.turned == "on":
                self._turn(device, layout.gpu, is_on=True)
            self._replace(device, before, wanted)
            if planned.turned == "off":
                self._turn(device, layout.gpu, is_on=False)
        except (AccessError, CapacityError, StateError) as error:
            self._bring_back(device, before, layout.gpu, planned.turned)
            raise type(error)(f"{error}; gpu {layout.gpu} is as it was before") from error
        made = self._instances(device) if wanted else []
        created = tuple(_part(self._index(device), one) for one in made)
        return replace(planned, created=created, is_done=True)

    def _replace(self, device: object, before: list[_Instance], wanted: list[_Wanted]) -> None:
        for instance in before:
            with self._errors(f"{_part(self._index(device), instance)} cannot be destroyed"):
                self._destroy(instance)
        for profile, place in wanted:
            with self._errors(f"{profile.name} cannot be created"):
                self._create(device, profile, place)

    def _bring_back(self, device: object, before: list[_Instance], gpu: str, turned: str) -> None:
        try:
            if turned == "off":
                self._turn_back(device, gpu, is_on=True)
            if self._is_on(device, gpu):
                self._restore(device, before)
            if turned == "on":
                self._turn_back(device, gpu, is_on=False)
        except (self._nvml.NVMLError, AccessError, CapacityError, StateError) as error:
            names: list[str] = []
            with suppress(self._nvml.NVMLError):
                names += [str(_part(self._index(device), one)) for one in self._instances(device)]
            raise StateError(
                f"gpu {gpu} could neither be cut nor brought back ({error}): "
                f"its instances are now {', '.join(names) or 'none'}"
            ) from error

    def _restore(self, device: object, before: list[_Instance]) -> None:
        """Restore the earlier instances; keeps those that were never destroyed.

        `_replace` creates nothing before it has destroyed all old instances, so those left tell how
        far it got.
        """
        known = {one.identity for one in before}
        for instance in self._instances(device):
            if instance.identity not in known:
                self._destroy(instance)
        left = {one.place.start: one for one in self._instances(device)}
        for instance in before:
            there = left.get(instance.place.start)
            handle = (
                there.handle if there else self._create_at(device, instance.profile, instance.place)
            )
            found = there.computes if there else ()
            for compute in found:
                if compute not in instance.computes:
                    self._nvml.nvmlComputeInstanceDestroy(compute.handle)
            for compute in instance.computes:
                if compute not in found:
                    self._create_compute(handle, compute, instance.profile)

    def _device(self, name: str) -> object:
        nvml = self._nvml
        try:
            if name.isascii() and name.isdigit():
                return nvml.nvmlDeviceGetHandleByIndex(int(name))
            return nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError as error:
            raise NotFoundError(f"there is no gpu '{name}'; `tandem gpus` lists them") from error

    def _index(self, device: object) -> int:
        return int(self._nvml.nvmlDeviceGetIndex(device))

    def _is_on(self, device: object, gpu: str) -> bool:
        nvml = self._nvml
        try:
            return bool(nvml.nvmlDeviceGetMigMode(device)[0])
        except nvml.NVMLError_NotSupported as error:
            raise StateError(
                f"gpu {gpu} has no MIG and cannot be cut; `tandem doctor` says which modes it "
                "supports"
            ) from error
        except nvml.NVMLError as error:
            raise StateError(f"whether gpu {gpu} has MIG cannot be found out: {error}") from error

    def _turn(self, device: object, gpu: str, *, is_on: bool) -> None:
        word = "on" if is_on else "off"
        with self._errors(f"MIG of gpu {gpu} cannot be turned {word}"):
            self._nvml.nvmlDeviceSetMigMode(device, int(is_on))
            if bool(self._nvml.nvmlDeviceGetMigMode(device)[0]) is not is_on:
                raise StateError(
                    f"MIG of gpu {gpu} is turned {word} only by a reset of the gpu: "
                    f"nvidia-smi -i {gpu} -mig {int(is_on)}, nvidia-smi -i {gpu} --gpu-reset, "
                    "and then the same again"
                )

    def _turn_back(self, device: object, gpu: str, *, is_on: bool) -> None:
        # The second mode is the pending one, which takes effect at the next reset.
        if any(bool(mode) is not is_on for mode in self._nvml.nvmlDeviceGetMigMode(device)):
            self._turn(device, gpu, is_on=is_on)

    def _profiles(self, device: object) -> Mapping[str, _Profile]:
        nvml, found = self._nvml, {}
        for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number)
            except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
                continue
            raw = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
            name = raw.removeprefix(_NAME_PREFIX)
            found[name] = _Profile(
                name=name,
                id=info.id,
                slices=info.sliceCount,
                most=info.instanceCount,
                places=self._possible_places(device, info.id),
            )
        return found

    def _possible_places(self, device: object, profile: int) -> tuple[Place, ...]:
        """Return all places of a profile on an empty GPU, whatever the GPU is cut into now."""
        nvml, count = self._nvml, self._nvml.c_uint(0)
        ask = nvml.nvmlDeviceGetGpuInstancePossiblePlacements
        try:
            ask(device, profile, None, nvml.byref(count))
            found = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
            ask(device, profile, found, nvml.byref(count))
        except nvml.NVMLError as error:  # the driver itself rejects what does not fit
            log.info("places of instances are not known", profile=profile, reason=str(error))
            return ()
        return tuple(Place(int(one.start), int(one.size)) for one in found[: count.value])

    def _wanted(self, device: object, layout: Layout) -> list[_Wanted]:
        with self._errors(f"cannot find out what gpu {layout.gpu} can be cut into"):
            known = self._profiles(device)
        for name in layout.profiles:
            if name not in known:
                raise UsageError(
                    f"'{name}' is not a MIG profile of gpu {layout.gpu}; there are "
                    f"{', '.join(known)}"
                )
            if layout.profiles.count(name) > known[name].most:
                raise UsageError(
                    f"'{layout.text}' has too many {name}: at most {known[name].most} fit"
                )
        profiles = [known[name] for name in layout.profiles]
        return list(zip(profiles, _places(layout, profiles), strict=True))

    def _mig_devices(self, device: object) -> Iterator[Any]:
        nvml = self._nvml
        with suppress(nvml.NVMLError_NotSupported):
            for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
                with suppress(nvml.NVMLError_NotFound):
                    yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)

    def _instances(self, device: object) -> list[_Instance]:
        nvml, found = self._nvml, {}
        for profile in self._profiles(device).values():
            handles = (nvml.c_nvmlGpuInstance_t * profile.most)()
            count = nvml.c_uint(profile.most)
            nvml.nvmlDeviceGetGpuInstances(device, profile.id, handles, nvml.byref(count))
            for handle in handles[: count.value]:
                info = nvml.nvmlGpuInstanceGetInfo(handle)
                found[int(info.id)] = _Instance(
                    profile=profile,
                    number=int(info.id),
                    place=Place(int(info.placement.start), int(info.placement.size)),
                    computes=tuple(self._computes(handle)),
                    handle=handle,
                )
        return [found[number] for number in sorted(found)]

    def _compute_profiles(self, instance: object) -> Iterator[Any]:
        nvml = self._nvml
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
                yield nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, number, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1
                )

    def _computes(self, instance: object) -> Iterator[_Compute]:
        nvml = self._nvml
        for profile in self._compute_profiles(instance):
            handles = (nvml.c_nvmlComputeInstance_t * profile.instanceCount)()
            count = nvml.c_uint(profile.instanceCount)
            nvml.nvmlGpuInstanceGetComputeInstances(
                instance, profile.id, handles, nvml.byref(count)
            )
            for handle in handles[: count.value]:
                place = nvml.nvmlComputeInstanceGetInfo_v2(handle).placement
                start, size = int(place.start), int(place.size)
                yield _Compute(profile=int(profile.id), start=start, size=size, handle=handle)

    def _destroy(self, instance: _Instance) -> None:
        for compute in instance.computes:
            self._nvml.nvmlComputeInstanceDestroy(compute.handle)
        self._nvml.nvmlGpuInstanceDestroy(instance.handle)

    def _create(self, device: object, profile: _Profile, place: Place | None) -> None:
        if place is None:
            instance = self._nvml.nvmlDeviceCreateGpuInstance(device, profile.id)
        else:
            instance = self._create_at(device, profile, place)
        whole = [
            one for one in self._compute_profiles(instance) if one.sliceCount == profile.slices
        ]
        if not whole:
            raise StateError(f"{profile.name} has no compute profile of {profile.slices} slices")
        self._nvml.nvmlGpuInstanceCreateComputeInstance(instance, whole[0].id)

    def _create_at(self, device: object, profile: _Profile, place: Place) -> object:
        told = self._nvml.c_nvmlGpuInstancePlacement_t(start=place.start, size=place.size)
        made_at = self._nvml.nvmlDeviceCreateGpuInstanceWithPlacement
        made: object = made_at(device, profile.id, self._nvml.byref(told))
        return made

    def _create_compute(self, instance: object, compute: _Compute, of: _Profile) -> None:
        nvml = self._nvml
        if compute.size == of.slices:  # its place is implied, and older drivers take none
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.profile)
            return
        place = nvml.c_nvmlComputeInstancePlacement_t(start=compute.start, size=compute.size)
        made_at = nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement
        made_at(instance, compute.profile, nvml.byref(place))

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        nvml = self._nvml
        try:
            yield
        except nvml.NVMLError_NoPermission as error:
            raise AccessError(f"{what}: the driver lets only root do it") from error
        except nvml.NVMLError_InUse as error:
            raise StateError(
                f"{what}: it is in use; end what runs there", reason="GPU_IN_USE"
            ) from error
        except nvml.NVMLError_InsufficientResources as error:
            raise CapacityError(f"{what}: it does not fit beside the others") from error
        except nvml.NVMLError as error:
            raise StateError(f"{what}: {error}") from error


def _part(gpu: int, instance: _Instance) -> Part:
    return Part(profile=instance.profile.name, name=f"{gpu}:{instance.number}")


def _places(layout: Layout, known: list[_Profile]) -> tuple[Place | None, ...]:
    """Place the profiles together, in any order; None: the driver chooses."""
    choices = [profile.places for profile in known]
    if not all(choices):
        return (None,) * len(known)
    places = arranged(choices)
    if places is not None:
        return places
    kept = fitting(choices)
    together = ",".join(known[one].name for one in kept)
    others = ", ".join(dict.fromkeys(p.name for i, p in enumerate(known) if i not in kept))
    raise CapacityError(
        f"'{layout.text}' does not fit: {together} does, and leaves no place for {others}"
    )

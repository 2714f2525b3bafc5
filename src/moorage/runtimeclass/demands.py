"""Demands of a pod: the fields that ask its runtime for a feature.

Two tables say which: one of the fields of a pod, one of those of a container. A value that asks for
what every runtime gives (`seccompProfile: RuntimeDefault`, `mountPropagation: None`) is no demand.
Hot path: under 15 µs for a pod of one container (bench/fitting.py). Source: core/v1 `PodSpec`,
`SecurityContext`, `VolumeMount`; the runtime's part of each is in KEP-585's list of features.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from moorage.api.pods import PodSpec
from moorage.runtimeclass.features import CAPABILITIES, capability_feature

# Shared values: equal values that many objects have, each kept once.
#
# Thousands of nodes have the same labels of handlers and the same findings of probes.

T = TypeVar("T", bound=Hashable)


class SharedValues(Generic[T]):
    """A pool of values, counted by their users."""

    def __init__(self) -> None:
        self._kept: dict[T, tuple[T, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, value: T) -> T:
        """Return the value that equals this one, to be given back as often as it was taken."""
        shared, users = self._kept.get(value, (value, 0))
        self._kept[shared] = (shared, users + 1)
        return shared

    def give_back(self, value: T) -> None:
        """Forget a value that was taken; the last user to do so frees it."""
        shared, users = self._kept[value]
        if users > 1:
            self._kept[shared] = (shared, users - 1)
        else:
            del self._kept[shared]


Path = tuple[str | int, ...]
"""Names of fields and indexes of lists, from `spec` on."""


class Demand(msgspec.Struct, frozen=True):
    """A field that asks for a feature of `moorage.runtimeclass.features`."""

    path: Path
    feature: str

    @property
    def field(self) -> str:
        """Return the path in the API's spelling: `spec.containers[0].tty`."""
        return spelled(self.path)


def spelled(path: Path) -> str:
    """Return a path as the API's errors spell it; a key that is no field name is in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int) or not step.isalnum():
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def demands(spec: Mapping[str, Any]) -> tuple[Demand, ...]:
    """Return the demands of a pod's specification as JSON, in the order of the tables.

    Values of a wrong type ask for nothing: the schema refuses them elsewhere.
    """
    found: list[Demand] = []
    _collect(_POD, spec, ("spec",), found)
    return tuple(found)


def demanded_features(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the features that a pod's specification as JSON asks for, each once, in order."""
    return tuple(dict.fromkeys(demand.feature for demand in demands(spec)))


def demands_of(spec: PodSpec) -> tuple[Demand, ...]:
    """Return the demands of a typed specification."""
    return demands(msgspec.to_builtins(spec))


_Features = Callable[[Any], Iterable[str]]


class _Each(msgspec.Struct, frozen=True):
    """The items of a list."""

    content: _Content


class _Keys(msgspec.Struct, frozen=True):
    """The keys of a map, each of which may ask for a feature."""

    features: _Features


_Content = Any
"""A table of fields, an `_Each`, a `_Keys`, or the features that a value asks for."""


def _flag(value: bool, feature: str) -> _Features:
    features = (feature,)
    return lambda given: features if given is value else ()


def _one_of(values: tuple[str, ...], feature: str) -> _Features:
    features = (feature,)
    return lambda given: features if given in values else ()


def _if_any(feature: str) -> _Features:
    features = (feature,)
    return lambda given: features if given else ()


def _added_capability(name: Any) -> Iterable[str]:
    if not isinstance(name, str):
        return ()
    plain = name.upper().removeprefix("CAP_")
    if plain == "ALL":
        return tuple(map(capability_feature, CAPABILITIES))
    if plain not in CAPABILITIES:
        return ()
    own = capability_feature(plain)
    return (own, "raw-sockets") if plain == "NET_RAW" else (own,)


_GPUS = ("nvidia.com/", "amd.com/gpu", "gpu.intel.com/")
_DEVICES = (
    "aws.amazon.com/neuron", "devices.kubevirt.io/", "google.com/tpu", "habana.ai/",
    "intel.com/", "qat.intel.com/", "sgx.intel.com/", "smarter-devices/", "squat.ai/",
    "xilinx.com/fpga", "rdma/", "openshift.io/", "mellanox.com/",
)  # fmt: skip
"""Beginnings of extended resources that device plugins hand out as devices of the node."""

_LIMITS = {"cpu": ("cpu-limit",), "memory": ("memory-limit",)}


def _device(name: str) -> Iterable[str]:
    if name.startswith(_GPUS):
        return ("gpu",)
    return ("devices",) if name.startswith(_DEVICES) else ()


def _limit(name: str) -> Iterable[str]:
    return _LIMITS.get(name) or _device(name)


_RESOURCES: _Content = {
    "limits": _Keys(_limit),
    # A device's request equals its limit, which the API sets where there is only one of both.
    "claims": _Each({"name": _if_any("devices")}),
}

_LOCALHOST: dict[str, dict[str, _Content]] = {
    # `RuntimeDefault` is whatever the runtime has, so each satisfies it.
    "seccompProfile": {"type": _one_of(("Localhost",), "seccomp")},
    "appArmorProfile": {"type": _one_of(("Localhost",), "apparmor")},
}

_HOOK: _Content = {"exec": _if_any("exec")}

_CONTAINER: dict[str, _Content] = {
    "securityContext": {
        "privileged": _flag(True, "privileged"),
        "capabilities": {"add": _Each(_added_capability)},
        **_LOCALHOST,
        "seLinuxOptions": _if_any("selinux"),
        "readOnlyRootFilesystem": _flag(True, "read-only-root"),
        "allowPrivilegeEscalation": _flag(False, "no-new-privileges"),
        "procMount": _one_of(("Unmasked",), "nested-containers"),
    },
    "volumeMounts": _Each({
        "recursiveReadOnly": _one_of(("Enabled",), "recursive-read-only-mounts"),
        "mountPropagation": _one_of(("HostToContainer", "Bidirectional"), "mount-propagation"),
    }),
    "volumeDevices": _Each({"devicePath": _if_any("block-volumes")}),
    "resources": _RESOURCES,
    "tty": _flag(True, "terminal"),
    "livenessProbe": _HOOK,
    "readinessProbe": _HOOK,
    "startupProbe": _HOOK,
    "lifecycle": {"postStart": _HOOK, "preStop": _HOOK},
}  # fmt: skip
"""Field of a container → the features that its value asks for."""

_POD: dict[str, _Content] = {
    "hostNetwork": _flag(True, "host-network"),
    "hostPID": _flag(True, "host-pid"),
    "hostIPC": _flag(True, "host-ipc"),
    "hostUsers": _flag(False, "user-namespaces"),
    "shareProcessNamespace": _flag(True, "shared-process-namespace"),
    "securityContext": {**_LOCALHOST, "seLinuxOptions": _if_any("selinux")},
    "resources": _RESOURCES,
    "volumes": _Each({"hostPath": {"type": _one_of(("CharDevice", "BlockDevice"), "devices")}}),
    "initContainers": _Each(_CONTAINER),
    "containers": _Each(_CONTAINER),
    "ephemeralContainers": _Each(_CONTAINER),
}
"""Field of a pod → the features that its value asks for."""


def _collect(content: _Content, value: Any, path: Path, found: list[Demand]) -> None:
    """Add the demands of a value, and of those in it."""
    kind = type(content)
    if kind is dict:
        if type(value) is dict:
            for name, below in content.items():
                if name in value:
                    _collect(below, value[name], (*path, name), found)
    elif kind is _Each:
        if type(value) in (list, tuple):
            for index, item in enumerate(value):
                _collect(content.content, item, (*path, index), found)
    elif kind is _Keys:
        if type(value) is dict:
            for key in value:
                for feature in content.features(key):
                    found.append(Demand((*path, key), feature))
    else:
        for feature in content(value):
            found.append(Demand(path, feature))

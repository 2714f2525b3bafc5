"""Runtime features for pods, from the output of a runtime's `features` command.

Source: OCI runtime-spec, "Features Structure"; CRI `RuntimeHandlerFeatures` for the rules of the
two features Kubernetes knows: recursive read-only mounts need the option `rro` and Linux 5.12, user
namespaces need idmapped mounts. A runtime without a `features` command has neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import msgspec

from moorage.linux.host import Host, read_host

# Host facts that decide about a runtime's availability.


@dataclass(frozen=True, slots=True)
class Machine:
    """Host facts that runtimes depend on. `kernel` is (major, minor).

    `is_hugetlb_apart`: a hybrid cgroup layout whose hugetlb controller is on version 2.
    """

    kernel: tuple[int, int]
    has_kvm: bool
    is_hugetlb_apart: bool = False

    @classmethod
    def of(cls, host: Host) -> Self:
        """Return the properties of a host that runtimes depend on."""
        return cls(host.kernel.version, host.has_kvm, host.cgroups.is_hugetlb_apart)


def this_machine() -> Machine:
    """Return the facts of this host at present: a device or a cgroup mount may appear later."""
    return Machine.of(read_host())


RECURSIVE_READ_ONLY_KERNEL = (5, 12)


@dataclass(frozen=True, slots=True)
class HandlerFeatures:
    """The features of `node.status.runtimeHandlers[].features`."""

    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the supported features in the API's spelling."""
        spelled = (
            ("recursiveReadOnlyMounts", self.recursive_read_only_mounts),
            ("userNamespaces", self.user_namespaces),
        )
        return tuple(name for name, is_offered in spelled if is_offered)


NO_FEATURES = HandlerFeatures()


class _Idmap(msgspec.Struct, frozen=True):
    enabled: bool | None = None


class _MountExtensions(msgspec.Struct, frozen=True):
    idmap: _Idmap | None = None


class _Linux(msgspec.Struct, frozen=True, rename="camel"):
    namespaces: tuple[str, ...] | None = None
    mount_extensions: _MountExtensions | None = None


class _Features(msgspec.Struct, frozen=True, rename="camel"):
    oci_version_max: str = ""
    mount_options: tuple[str, ...] | None = None
    linux: _Linux | None = None


def parse_features(document: bytes, kernel: tuple[int, int]) -> HandlerFeatures | None:
    """Parse the output of `features` for a kernel version; None when it is not a features document.

    Programs without the command print a usage text or an error instead.
    """
    try:
        parsed = msgspec.json.decode(document, type=_Features)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if not parsed.oci_version_max:
        return None
    return HandlerFeatures(
        recursive_read_only_mounts="rro" in (parsed.mount_options or ())
        and kernel >= RECURSIVE_READ_ONLY_KERNEL,
        user_namespaces=_has_user_namespaces(parsed.linux),
    )


def _has_user_namespaces(linux: _Linux | None) -> bool:
    if linux is None or "user" not in (linux.namespaces or ()):
        return False
    idmap = linux.mount_extensions.idmap if linux.mount_extensions else None
    return idmap is not None and bool(idmap.enabled)

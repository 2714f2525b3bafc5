"""CDI devices: what a device name adds to a spec, as vendors' files describe it.

Files are JSON or YAML in two directories; the later directory wins where both describe a device.
They are read when a container requests a device, so that a vendor tool's output applies at once.
Source: CNCF Container Device Interface 1.0, "CDI JSON Specification"; CRI CDIDevice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.yaml_values import parse_document
from moorage.engine.errors import InvalidError
from moorage.linux.trust import distrust
from moorage.wire.cri import pb

DEFAULT_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
_ANNOTATION = "cdi.k8s.io/"
_SUFFIXES = (".json", ".yaml", ".yml")
_QUALIFIED = re.compile(
    r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"
)


class DeviceNode(msgspec.Struct, frozen=True, rename="camel"):
    """A device node; absent fields are read from the host's node."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class CdiMount(msgspec.Struct, frozen=True, rename="camel"):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(msgspec.Struct, frozen=True, rename="camel"):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class ContainerEdits(msgspec.Struct, frozen=True, rename="camel"):
    """The edits of a device to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")
    intel_rdt: dict[str, Any] | None = None

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        return ContainerEdits(
            self.env + other.env,
            self.device_nodes + other.device_nodes,
            self.mounts + other.mounts,
            self.hooks + other.hooks,
            self.additional_gids + other.additional_gids,
            other.intel_rdt or self.intel_rdt,
        )


NO_EDITS = ContainerEdits()


class CdiDevice(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: ContainerEdits = NO_EDITS


class CdiSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A CDI file: the devices of one vendor and class."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...] = ()
    container_edits: ContainerEdits = NO_EDITS


@dataclass(frozen=True, slots=True)
class CdiDirectories:
    """The directories of CDI files, in order of precedence."""

    directories: Sequence[Path] = field(default=DEFAULT_DIRECTORIES)

    def edits(self, names: Sequence[str]) -> ContainerEdits:
        """Return the merged edits of devices. Blocks.

        Raises InvalidError naming the unknown devices, and the broken files.
        """
        specs, complaints = self._read()
        return merged_edits(names, specs, complaints)

    def _read(self) -> tuple[list[list[CdiSpec]], list[str]]:
        """Return the specs of each directory, the highest precedence first."""
        complaints: list[str] = []
        found_specs = []
        for directory in reversed(self.directories):
            specs = []
            for path in _files(directory):
                distrusted = distrust(path)
                if distrusted is not None:
                    complaints.append(f"{path} is not used: {distrusted}")
                    continue
                try:
                    specs.append(parse_spec(path.read_bytes(), is_json=path.suffix == ".json"))
                except (OSError, ValueError) as error:
                    complaints.append(f"{path}: {' '.join(str(error).split())}")
            found_specs.append(specs)
        return found_specs, complaints


def requested_devices(config: pb.ContainerConfig) -> tuple[str, ...]:
    """Return the devices that a container requests, in the CRI's field or in annotations."""
    names = [cdi_device.name for cdi_device in config.CDI_devices]
    for key, value in sorted(config.annotations.items()):
        if key.startswith(_ANNOTATION):
            names += value.split(",")
    return tuple(dict.fromkeys(names))


def parse_spec(content: bytes, *, is_json: bool) -> CdiSpec:
    """Parse a CDI file. Raises ValueError."""
    try:
        if is_json:
            return msgspec.json.decode(content, type=CdiSpec)
        return msgspec.convert(parse_document(content).value, CdiSpec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


def merged_edits(
    names: Iterable[str], directories: Sequence[Sequence[CdiSpec]], complaints: Sequence[str] = ()
) -> ContainerEdits:
    """Merge the edits of devices: a file's own once, then each device's.

    A name that two files of one directory describe is a conflict. Raises InvalidError.
    """
    edits = NO_EDITS
    unresolved = []
    used: list[CdiSpec] = []
    for name in names:
        if not _QUALIFIED.match(name):
            raise InvalidError(
                f"CDI device {name!r} is not a fully qualified name; use the form "
                "vendor.com/class=device"
            )
        match = _find(name, directories)
        if match is None:
            unresolved.append(name)
            continue
        spec, device = match
        if not any(other is spec for other in used):
            used.append(spec)
            edits += spec.container_edits
        edits += device.container_edits
    if unresolved:
        broken = f"; unreadable: {'; '.join(complaints)}" if complaints else ""
        raise InvalidError(
            f"unresolvable CDI devices {', '.join(unresolved)}: no spec in the CDI "
            f"directories, or several conflicting ones; generate one with the vendor's tool{broken}"
        )
    return edits


def _find(name: str, directories: Sequence[Sequence[CdiSpec]]) -> tuple[CdiSpec, CdiDevice] | None:
    kind, _, device_name = name.partition("=")
    for specs in directories:
        matches = [
            (spec, device)
            for spec in specs
            if spec.kind == kind
            for device in spec.devices
            if device.name == device_name
        ]
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from sorted(entry for entry in directory.iterdir() if entry.suffix in _SUFFIXES)

"""Host lookups for one container's spec.

The only part of the spec that reads the host for each container, and only what that one needs:
mostly one call for each mount. Source: containerd, for creating an absent source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.errors import InvalidError
from moorage.engine.oci.cdi import NO_EDITS, CdiDirectories, ContainerEdits, requested_devices
from moorage.engine.oci.context import Document, HandlerTraits, HostFacts
from moorage.engine.oci.devices import (
    HostDevice,
    all_host_devices,
    described_devices,
    resolve_devices,
)
from moorage.engine.oci.process import (
    APP_ARMOR_PROFILES,
    needs_app_armor_profiles,
    parse_app_armor_profiles,
)
from moorage.engine.oci.propagation import Peers, parse_peers
from moorage.engine.oci.seccomp.profile import SecurityContext, choose_seccomp, read_profile
from moorage.linux.mounts import MOUNTINFO
from moorage.linux.trees import make_directories
from moorage.linux.trust import distrust
from moorage.wire.cri import pb

_MISSING_MODE = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of the lookups.

    `sources` maps each mount's host_path to its real path. `peers` is empty without mount
    propagation, `seccomp` None when the profile is not a file's, `app_armor` the loaded profiles.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[Peers, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    edits: ContainerEdits = NO_EDITS
    seccomp: Document | None = None
    app_armor: frozenset[str] = frozenset()


def look_up_container(
    config: pb.ContainerConfig,
    handler: HandlerTraits,
    host: HostFacts,
    cdi: CdiDirectories,
    *,
    distrust: Callable[[Path], object] = distrust,
    profiles: Path = APP_ARMOR_PROFILES,
) -> Findings:
    """Look up the facts for a container's spec. Blocks.

    Creates directories for absent mount sources. Raises InvalidError naming the field.
    """
    security = config.linux.security_context
    travels = any(mount.propagation != pb.PROPAGATION_PRIVATE for mount in config.mounts)
    has_all = security.privileged and handler.has_host_devices_when_privileged
    names = requested_devices(config)
    edits = cdi.edits(names) if names else NO_EDITS
    for hook in edits.hooks:
        untrusted = distrust(Path(hook.path))
        if untrusted is not None:
            raise InvalidError(f"refusing to run CDI hook {hook.path}: {untrusted}")
    devices = (
        *(all_host_devices() if has_all else ()),
        *resolve_devices(config.devices),
        *described_devices(edits.device_nodes),
    )
    return Findings(
        sources={mount.host_path: _source(mount) for mount in config.mounts},
        peers=parse_peers(os.fsdecode(MOUNTINFO.read_bytes())) if travels else (),
        # A node can be created once: a requested device is more specific than the host's.
        devices=tuple({device.path: device for device in devices}.values()),
        edits=edits,
        seccomp=_profile(security, handler, host),
        app_armor=_loaded_profiles(security, host, profiles),
    )


def look_up_sandbox(
    config: pb.PodSandboxConfig, handler: HandlerTraits, host: HostFacts
) -> Findings:
    """Look up the facts for a sandbox's spec. Blocks. Raises InvalidError naming the field."""
    security = config.linux.security_context
    return Findings(
        seccomp=_profile(security, handler, host),
        app_armor=_loaded_profiles(security, host),
    )


def _source(mount: pb.Mount) -> str:
    path = mount.host_path
    if not path.startswith("/"):
        what = f"of image {mount.image.image!r}" if mount.image.image else f"{path!r}"
        raise InvalidError(
            f"mount {mount.container_path}: host_path {what} must be an absolute path"
        )
    try:
        real = _real(path)
        if not os.path.lexists(real):
            make_directories(Path(real), _MISSING_MODE)
    except OSError as error:
        raise InvalidError(
            f"mount {mount.container_path}: host_path {path} does not exist and cannot be "
            f"created: {error.strerror}"
        ) from error
    return real


def _real(path: str) -> str:
    """Return a path without links, resolved by the kernel if it exists. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_PATH)
    except FileNotFoundError:
        # Link chains too long for the kernel, on which this would recurse, were refused above.
        return os.path.realpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _profile(security: SecurityContext, handler: HandlerTraits, host: HostFacts) -> Document | None:
    chosen = choose_seccomp(security, handler.default_seccomp, has_seccomp=host.has_seccomp)
    return read_profile(chosen.path) if chosen.path else None


def _loaded_profiles(
    security: SecurityContext, host: HostFacts, profiles: Path = APP_ARMOR_PROFILES
) -> frozenset[str]:
    if not needs_app_armor_profiles(security, host):
        return frozenset()
    try:
        return parse_app_armor_profiles(profiles.read_text())
    except OSError as error:
        raise InvalidError(
            f"the loaded apparmor profiles cannot be read: {error.strerror}; mount securityfs on "
            "/sys/kernel/security"
        ) from error

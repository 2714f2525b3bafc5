"""Debian packages of a full node: which are missing, and their installation.

Packages are installed only on Debian and its derivatives, only as root, and only on request;
otherwise the error says what to install by hand.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.host import Inventory, gather
from moorage.linux.command import CommandError, must_run

INSTALL_DEADLINE_S = 3600.0

# A new host often upgrades itself; without this, apt-get fails at once on dpkg's lock.
_PATIENT = ("-o", "DPkg::Lock::Timeout=300")

# Source: Debian Policy, section 5.6.1.
_NAME = re.compile("[a-z0-9][a-z0-9+.-]{1,127}")

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Package:
    """A package: its purpose, and a check whether the host has its content."""

    purpose: str
    is_there: Callable[[Inventory], bool]
    is_required: bool = True


def _has(*tools: str) -> Callable[[Inventory], bool]:
    return lambda host: all(tool in host.tools for tool in tools)


PACKAGES: Mapping[str, Package] = {
    "conmon": Package("the process that stays with each container", _has("conmon")),
    "skopeo": Package("pulling images", _has("skopeo")),
    "runc": Package("the handler runc, which pods without a class use", _has("runc")),
    "crun": Package("the handler crun", _has("crun"), is_required=False),
    "runsc": Package(
        "the runtime of the handlers runsc and gvisor", _has("runsc"), is_required=False
    ),
    "containernetworking-plugins": Package("pods' networks", lambda host: not host.cni.missing),
    "iproute2": Package("the bridge of pods' networks", _has("ip")),
    "iptables": Package("pods' way out and host ports", _has("iptables")),
    "nftables": Package("Services and network policies", _has("nft")),
    "conntrack": Package(
        "cutting off UDP clients of endpoints that are gone", _has("conntrack"), is_required=False
    ),
    "busybox-static": Package("the images of the examples", _has("busybox")),
    "catatonit": Package(
        "the init of pods that share processes", _has("catatonit"), is_required=False
    ),
}


class InstallError(CannotRunPodsError):
    """Packages cannot be installed; the text says what to do instead."""


def missing_packages(host: Inventory) -> tuple[str, ...]:
    """Return the packages whose content this host lacks, from whatever source it may come."""
    return tuple(name for name, package in PACKAGES.items() if not package.is_there(host))


async def install_packages(names: Iterable[str], host: Inventory) -> tuple[str, ...]:
    """Install packages with apt-get; return those that were installed.

    Logs and leaves out an optional package that cannot be installed. Does nothing without names.
    Raises InstallError without apt-get or root, and if a required package cannot be installed.
    """
    packages = tuple(names)
    if not packages:
        return ()
    apt = _apt_get(packages, host)
    required = tuple(name for name in packages if PACKAGES[name].is_required)
    try:
        try:
            await _install(apt, packages, host)
        except CommandError:
            # A new host has no package lists yet, an old one has stale ones.
            await _update(apt, host)
            return await _install_what_there_is(apt, packages, host)
    except CommandError as error:
        listed = " ".join(required)
        raise InstallError(f"{error}; run `apt-get install {listed}` by hand") from error
    return packages


async def install_package_of_host(data_dir: Path, name: str) -> None:
    """Gather the host's inventory, then install one package as `install_package` does."""
    await install_package(name, await gather(data_dir))


async def install_package(name: str, host: Inventory) -> None:
    """Install one package of any name with apt-get, or its newest version.

    Raises InstallError for a name that is none, without apt-get or root, and if it fails.
    """
    if not _NAME.fullmatch(name):
        raise InstallError(f"{name!r} is no name of a Debian package")
    apt = shutil.which("apt-get", path=host.path)
    if not host.system.is_debian_like or apt is None or not host.is_root:
        raise InstallError(
            f"package {name} is installed on Debian and Ubuntu only, by root: install what "
            "corresponds to it, and give its program with --binary"
        )
    try:
        try:
            await _install(apt, (name,), host)
        except CommandError:
            await _update(apt, host)
            await _install(apt, (name,), host)
    except CommandError as error:
        raise InstallError(f"{error}; run `apt-get install {name}` by hand") from error


async def _install_what_there_is(
    apt: str, packages: tuple[str, ...], host: Inventory
) -> tuple[str, ...]:
    required = tuple(name for name in packages if PACKAGES[name].is_required)
    if required:
        await _install(apt, required, host)
    installed = [*required]
    for name in (package for package in packages if package not in required):
        try:
            await _install(apt, (name,), host)
        except CommandError as error:
            log.warning("package left out", package=name, reason=error)
        else:
            installed.append(name)
    return tuple(installed)


async def _update(apt: str, host: Inventory) -> None:
    try:
        await _run(apt, "update", host=host)
    except CommandError as error:
        # One broken source of many, or no network: what is available may be enough.
        log.warning("package lists are not up to date", reason=error)


async def _install(apt: str, names: tuple[str, ...], host: Inventory) -> None:
    await _run(apt, "install", "--yes", "--no-install-recommends", *names, host=host)


async def _run(*argv: str, host: Inventory) -> None:
    environment = {**os.environ, "PATH": host.path, "DEBIAN_FRONTEND": "noninteractive"}
    program, *arguments = argv
    await must_run(
        [program, *_PATIENT, *arguments], deadline_s=INSTALL_DEADLINE_S, environment=environment
    )


def _apt_get(packages: tuple[str, ...], host: Inventory) -> str:
    listed = " ".join(packages)
    apt = shutil.which("apt-get", path=host.path)
    if not host.system.is_debian_like or apt is None:
        purposes = "; ".join(f"{name} ({PACKAGES[name].purpose})" for name in packages)
        raise InstallError(
            f"packages are installed on Debian and Ubuntu only, and this is {host.system.name}: "
            f"install what corresponds to {purposes}"
        )
    if not host.is_root:
        raise InstallError(f"installing packages needs root: sudo apt-get install {listed}")
    return apt

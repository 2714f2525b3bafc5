"""The Debian packages a full node is made of: which are missing, and installing them.

Only on Debian and what is like it, only as root, and only when asked: anywhere else the answer says
what to look for by hand.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from moorage.api.logs import Log
from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.host import Inventory
from moorage.linux.command import CommandError, must_run

INSTALL_DEADLINE_S = 3600.0

# A fresh machine often upgrades itself, and apt-get gives up at once without this.
_PATIENT = ("-o", "DPkg::Lock::Timeout=300")

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Package:
    """A package: its purpose, and a check whether its content is installed."""

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
    "busybox-static": Package("the images of the examples", _has("busybox")),
    "catatonit": Package(
        "the init of pods that share processes", _has("catatonit"), is_required=False
    ),
}


class InstallError(CannotRunPodsError):
    """Packages that cannot be installed from here; the text says what to do instead."""


def missing_packages(host: Inventory) -> tuple[str, ...]:
    """Return the packages whose content this host lacks, however it was installed."""
    return tuple(name for name, package in PACKAGES.items() if not package.is_there(host))


async def install_packages(names: Iterable[str], host: Inventory) -> tuple[str, ...]:
    """Install packages with apt-get; those that were installed. Nothing is done for none.

    One that a node can do without and that this system doesn't have is left out. Raises
    InstallError where there is no apt-get or no right to use it, and when a required one fails.
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
            # A fresh machine has no lists of packages yet, an old one stale ones.
            await _update(apt, host)
            return await _install_what_there_is(apt, packages, host)
    except CommandError as error:
        listed = " ".join(required)
        raise InstallError(f"{error}; run `apt-get install {listed}` by hand") from error
    return packages


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
        # One broken source among many, or no network: what can be had may be enough.
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

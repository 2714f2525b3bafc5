"""Setup and removal of a cluster's network on the host.

The bridge is created before the first pod, so that the API server can be reached at the pods'
gateway from the start. Setup and removal are idempotent: what exists stays, what is missing is no
error.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from moorage.api.clock import Clock, sleep_unless_set
from moorage.api.logs import Log
from moorage.cluster.host import Inventory
from moorage.cluster.network.rules import (
    guard_script,
    has_service_proxy,
    mark_chain_name,
    missing_rules,
    removal_script,
    setup_script,
)
from moorage.cluster.network.subnet import (
    FILE_NAME,
    PodNetwork,
    outward_mtu,
    write_conflist,
)
from moorage.cluster.settings import Settings
from moorage.linux.atomic_file import replace_file
from moorage.linux.command import Answer, CommandError, must_run
from moorage.linux.nftables import Nftables, NftablesError, NftablesMissingError
from moorage.linux.routes import Route, host_routes
from moorage.linux.trust import make_private
from moorage.network.frame import table_name, tables_removal

# Network plan: the pod network that a cluster's settings and the host's routes give.


def pod_network(
    settings: Settings, leases: Path, mtu_of: Callable[[Iterable[Route]], int] = outward_mtu
) -> PodNetwork:
    """Return the pod network; `leases` is the directory of its address leases."""
    return PodNetwork(
        cluster_id=settings.cluster_id,
        subnet=IPv4Network(settings.pod_network),
        leases=leases,
        mtu=mtu_of(host_routes()),
        services=IPv4Network(settings.service_network),
        listeners=settings.listeners,
    )


# Pod bridge of an external engine, if its CNI configuration names one.
#
# Both containerd and CRI-O read `/etc/cni/net.d` by default, and use the first file.
# Source: libcni `ConfFiles`, CNI plugin bridge.

CNI_CONFIGURATIONS = Path("/etc/cni/net.d")
_SUFFIXES = (".conf", ".conflist", ".json")
_DEFAULT_BRIDGE = "cni0"
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


def pod_bridges(directory: Path = CNI_CONFIGURATIONS) -> tuple[str, ...]:
    """Return the bridges of the first network configuration; none if it is missing or has none."""
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES)
        content: Any = json.loads(files[0].read_bytes()) if files else {}
    except (OSError, ValueError):
        return ()
    if not isinstance(content, dict):
        return ()
    plugins = content.get("plugins", [content])
    if not isinstance(plugins, list):
        return ()
    names = [
        plugin.get("bridge", _DEFAULT_BRIDGE)
        for plugin in plugins
        if isinstance(plugin, dict) and plugin.get("type") == "bridge"
    ]
    return tuple(name for name in names if isinstance(name, str) and _INTERFACE.fullmatch(name))


# The interface of a Kubernetes service proxy in mode ipvs.
_IPVS_INTERFACE = "kube-ipvs0"
_LOCK_WAIT_S = 10
_DEADLINE_S = 20.0
_ATTEMPTS = 3
_LOOK_S, _GATHER_S = 60.0, 1.0

log = Log(__name__)


class NetworkError(Exception):
    """The network cannot be set up; the text says what to do."""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """State of the network. `complaint` says why pods reach no other hosts, empty if they do."""

    complaint: str = ""


async def set_up(network: PodNetwork, host: Inventory, configurations: Path) -> NetworkState:
    """Create the bridge, the rules and the conflist in `configurations`, for a starting node.

    If iptables is not usable, pods reach each other and the host only, and have no host ports; the
    state returned says why, and it is logged. Raises NetworkError without root or CNI plugins, or
    if the bridge cannot be created.
    """
    if not host.is_root:
        raise NetworkError("a node's network needs root: run as root, or without a node")
    if host.cni.missing:
        raise NetworkError(
            f"the CNI plugins {', '.join(host.cni.missing)} are missing: "
            "apt-get install containernetworking-plugins"
        )
    await _make_bridge(network, host)
    complaint = host.firewall.complaint or await _make_rules(network, host)
    mark_chain = None if complaint else mark_chain_name(network)
    _write_conflist(configurations, write_conflist(network, mark_chain))
    if complaint:
        log.warning("pods have no egress and no host ports", reason=complaint)
    return NetworkState(complaint)


async def keep(network: PodNetwork, host: Inventory, touched: asyncio.Event, clock: Clock) -> None:
    """Add the rules again when another program removes them, until cancelled.

    A firewall that is reloaded removes all that it did not write. `touched` is set when another
    program changes rules; without it they are looked at now and then.
    """
    # What the kernel writes otherwise than the script is never found.
    unlike = await _missing_rules(network, host)
    while True:
        await sleep_unless_set(clock, _LOOK_S, touched)
        touched.clear()
        await clock.sleep(_GATHER_S)
        if await _missing_rules(network, host) - unlike:
            complaint = await _make_rules(network, host)
            log.warning("another program removed the network's rules; added again")
            if complaint:
                log.warning("pods have no egress and no host ports", reason=complaint)


async def _missing_rules(network: PodNetwork, host: Inventory) -> frozenset[str]:
    try:
        saved = await _saved_rules(host)
    except CommandError as error:
        log.warning("the network's rules cannot be read", reason=error)
        return frozenset()
    return missing_rules(_script(network, saved), saved)


async def remove(network: PodNetwork, host: Inventory) -> None:
    """Remove the bridge, the rules and CNI's cached results. Raises CommandError."""
    if host.firewall.is_usable:
        await _remove_rules(network, host)
    await asyncio.to_thread(_remove_tables, network)
    bridge = network.places.interfaces / network.bridge
    if bridge.exists():
        try:
            await _run(host, "ip", "link", "delete", network.bridge)
        except CommandError:
            # Another process may have removed it since.
            if bridge.exists():
                raise
    forget(network)


def forget(network: PodNetwork, sandbox_ids: Iterable[str] = ()) -> None:
    """Remove CNI's cached results of the network, and of these sandboxes' loopback."""
    if not network.places.cni_cache.is_dir():
        return
    prefixes = (f"{network.name}-", *(f"cni-loopback-{sandbox_id}-" for sandbox_id in sandbox_ids))
    for entry in network.places.cni_cache.iterdir():
        if entry.name.startswith(prefixes):
            entry.unlink(missing_ok=True)


def _remove_tables(network: PodNetwork) -> None:
    """Remove the network agent's tables. Raises CommandError."""
    try:
        kernel = Nftables()
    except NftablesMissingError:
        # What made them is no longer installed, or never was.
        return
    try:
        kernel.run(tables_removal(network.cluster_id))
    except NftablesError as error:
        raise CommandError(
            ["nft", "delete", "table", table_name(network.cluster_id)], str(error)
        ) from error
    finally:
        kernel.close()


async def _make_bridge(network: PodNetwork, host: Inventory) -> None:
    commands = []
    if not (network.places.interfaces / network.bridge).exists():
        # Without a MAC address of its own, the bridge would take the lowest of its ports'.
        address = "0a:58:" + ":".join(f"{part:02x}" for part in network.gateway.packed)
        commands.append(f"link add {network.bridge} address {address} type bridge")
    place = f"{network.gateway}/{network.subnet.prefixlen}"
    commands += [
        f"link set {network.bridge} mtu {network.mtu} up",
        f"addr replace {place} brd + dev {network.bridge}",
        f"addr replace {network.dns_address}/32 dev {network.bridge}",
    ]
    if network.services is not None:
        # So that the host itself reaches Services, with the gateway's address as the source, also
        # where it has no default route. Packets are sent to endpoints before they would take it.
        commands.append(f"route replace {network.services} dev {network.bridge}")
    try:
        await _run(host, "ip", "-batch", "-", stdin="".join(f"{line}\n" for line in commands))
    except CommandError as error:
        raise NetworkError(f"the bridge {network.bridge} cannot be made: {error}") from error


async def protect(network: PodNetwork, host: Inventory, interfaces: Sequence[str] = ()) -> None:
    """Keep host ports off the cluster's own ports, for a cluster whose pods have another network.

    Service addresses, if the network has any, are refused to the host and to packets from the
    `interfaces`, unless the host has a route of its own to them or a Kubernetes service proxy.
    Does nothing without root or iptables, where no pod can have a host port. Logs a failure.
    """
    if not host.is_root or not host.firewall.is_usable:
        return
    try:
        saved = await _saved_rules(host)
        refuses = not (_has_route_to_services(network) or _has_service_proxy(network, saved))
        try:
            script = guard_script(network, saved, interfaces=interfaces, refuses_services=refuses)
            await _restore(host, script)
        except CommandError as error:
            if network.services is None:
                raise
            # A kernel without the REJECT target.
            await _restore(host, guard_script(network, saved))
            log.warning("service addresses are not refused", reason=error)
    except CommandError as error:
        log.warning("host ports of pods can take the cluster's own", reason=error)


async def unprotect(network: PodNetwork, host: Inventory) -> None:
    """Remove the rules of `protect`; do nothing without root or iptables. Raises CommandError."""
    if host.is_root and host.firewall.is_usable:
        await _remove_rules(network, host)


async def _make_rules(network: PodNetwork, host: Inventory) -> str:
    """Add the rules. Return why they could not be added, empty if they were."""
    try:
        saved = await _saved_rules(host)
        try:
            await _restore(host, _script(network, saved))
        except CommandError as error:
            if network.services is None:
                raise
            # A kernel without the REJECT target; all else works without it.
            await _restore(host, _script(replace(network, services=None), saved))
            log.warning("service addresses are not refused", reason=error)
    except CommandError as error:
        return str(error)
    return ""


def _script(network: PodNetwork, saved: str) -> str:
    """Return the setup script; with another's route to services, it refuses only pods."""
    is_routed = _has_route_to_services(network)
    return setup_script(network, saved, refuses_for_host=not is_routed)


def _has_route_to_services(network: PodNetwork) -> bool:
    routed = (
        route.network
        for route in host_routes(network.places.routes)
        if route.network.prefixlen and route.interface != network.bridge
    )
    services = network.services
    return services is not None and any(services.overlaps(destination) for destination in routed)


def _has_service_proxy(network: PodNetwork, saved: str) -> bool:
    return has_service_proxy(saved) or (network.places.interfaces / _IPVS_INTERFACE).exists()


async def _remove_rules(network: PodNetwork, host: Inventory) -> None:
    """Remove the network's rules and chains. Raises CommandError."""
    for attempt in range(_ATTEMPTS):
        script = removal_script(network, await _saved_rules(host))
        if not script:
            return
        try:
            await _restore(host, script)
        except CommandError:
            # A CNI plugin may have removed a saved rule meanwhile.
            if attempt == _ATTEMPTS - 1:
                raise


async def _saved_rules(host: Inventory) -> str:
    return (await _run(host, "iptables-save")).text


async def _restore(host: Inventory, script: str) -> None:
    wait = ("--wait", str(_LOCK_WAIT_S))
    await _run(host, "iptables-restore", "--noflush", *wait, stdin=script)


async def _run(host: Inventory, *argv: str, stdin: str = "") -> Answer:
    """Run a program on the host inventory's search path, which may be longer than our PATH."""
    environment = {**os.environ, "PATH": host.path}
    return await must_run(
        argv, stdin=stdin.encode(), deadline_s=_DEADLINE_S, environment=environment
    )


def _write_conflist(directory: Path, text: str) -> None:
    """Write the conflist atomically: the engine watches the directory and reads it at once."""
    make_private(directory)
    replace_file(directory / FILE_NAME, text.encode())

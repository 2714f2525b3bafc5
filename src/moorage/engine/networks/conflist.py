"""CNI network configuration: the first file of a directory, in the order of file names.

Source: CNI specification 1.1, "Network configuration format"; containerd and CRI-O choose the
file the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.linux.trust import distrust

_SUFFIXES = (".conf", ".conflist", ".json")
# Reference plugins whose result does not depend on the pod's name: they can run in advance.
_POD_INDEPENDENT = frozenset(
    {"bandwidth", "bridge", "firewall", "loopback", "portmap", "ptp", "tuning"}
)


class ConflistError(Exception):
    """No usable configuration; the text names the directory or file."""


@dataclass(frozen=True, slots=True)
class Conflist:
    """A network: its plugins in the order of ADD, each with its configuration object."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    file: Path

    @property
    def is_pod_independent(self) -> bool:
        """Whether every plugin works the same for any pod."""
        return all(plugin["type"] in _POD_INDEPENDENT for plugin in self.plugins)


def read_conflist(directory: Path) -> Conflist:
    """Return the network of a directory of configurations. Raises ConflistError."""
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in _SUFFIXES)
    except FileNotFoundError:
        files = []
    if not files:
        raise ConflistError(f"no network configuration in {directory}")
    untrusted = distrust(files[0])
    if untrusted is not None:
        raise ConflistError(f"refusing network configuration {files[0]}: {untrusted}")
    return parse_conflist(files[0].read_bytes(), files[0])


def parse_conflist(text: bytes, file: Path) -> Conflist:
    """Parse a network configuration: a list of plugins or a single one. Raises ConflistError."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConflistError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise ConflistError(f"{file}: network configuration has no name")
    plugins = document.get("plugins", [document])
    if not isinstance(plugins, list) or not plugins or not all(map(_is_plugin, plugins)):
        raise ConflistError(f"{file} has no plugins, or one without a type")
    version = document.get("cniVersion", "0.2.0")
    return Conflist(document["name"], version, tuple(plugins), file)


def plugin_input(
    network: Conflist,
    plugin: Mapping[str, Any],
    capability_args: Mapping[str, Any],
    previous: Mapping[str, Any] | None,
) -> bytes:
    """Return a plugin's stdin: its configuration, the capability arguments it declares and the
    previous plugin's result.
    """
    document = {**plugin, "name": network.name, "cniVersion": network.version}
    runtime_config = {
        name: value for name, value in capability_args.items() if _has_capability(plugin, name)
    }
    document.pop("capabilities", None)
    if runtime_config:
        document["runtimeConfig"] = runtime_config
    if previous is not None:
        document["prevResult"] = previous
    return msgspec.json.encode(document)


def is_result(answer: Mapping[str, Any]) -> bool:
    """Return whether a plugin's answer has the types of a CNI result."""
    return _result(answer) is not None


def addresses_of(answer: Mapping[str, Any], interface: str) -> tuple[str, ...]:
    """Return an interface's addresses in a CNI result, IPv4 first; none if it is not a result.

    Source: CNI specification, "Result": `ips[].interface` is an index into `interfaces`; before
    0.3 there were `ip4` and `ip6` instead.
    """
    result = _result(answer)
    if result is None:
        return ()
    cidrs = [legacy.ip for legacy in (result.ip4, result.ip6) if legacy is not None]
    interfaces = result.interfaces or ()
    for entry in result.ips or ():
        if entry.interface is not None and 0 <= entry.interface < len(interfaces):
            device = interfaces[entry.interface]
            if device.name != interface or not device.sandbox:
                continue
        cidrs.append(entry.address)
    addresses = [cidr.partition("/")[0] for cidr in cidrs]
    return tuple(sorted(filter(None, addresses), key=lambda address: ":" in address))


class _Interface(msgspec.Struct, frozen=True):
    name: str = ""
    sandbox: str = ""


class _Address(msgspec.Struct, frozen=True):
    address: str
    interface: int | None = None


class _OldAddress(msgspec.Struct, frozen=True):
    ip: str


class _Result(msgspec.Struct, frozen=True):
    interfaces: tuple[_Interface, ...] | None = None
    ips: tuple[_Address, ...] | None = None
    ip4: _OldAddress | None = None
    ip6: _OldAddress | None = None


def _result(answer: Mapping[str, Any]) -> _Result | None:
    try:
        return msgspec.convert(answer, _Result)
    except msgspec.ValidationError:
        return None


def _has_capability(plugin: Mapping[str, Any], capability: str) -> bool:
    capabilities = plugin.get("capabilities")
    return isinstance(capabilities, dict) and bool(capabilities.get(capability))


def _is_plugin(plugin: object) -> bool:
    return isinstance(plugin, dict) and isinstance(plugin.get("type"), str) and bool(plugin["type"])

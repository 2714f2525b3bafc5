"""Which network pods get: the first configuration of a directory, in the order of file names.

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
# The reference plugins that give every pod the same, whatever its name: what they make can be
# made before the pod is known.
_IMPERSONAL = frozenset({"bridge", "ptp", "loopback", "portmap", "firewall", "tuning"})


class ConflistError(Exception):
    """No usable configuration; the text names the directory or file."""


@dataclass(frozen=True, slots=True)
class Conflist:
    """A network: its plugins in the order they add, each with its configuration object."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    file: Path

    @property
    def is_impersonal(self) -> bool:
        """Whether no plugin looks at which pod it works for."""
        return all(each["type"] in _IMPERSONAL for each in self.plugins)

    @property
    def has_host_ports(self) -> bool:
        return any(_wants(each, "portMappings") for each in self.plugins)


def read_conflist(directory: Path) -> Conflist:
    """The network of a directory of configurations. Raises ConflistError."""
    try:
        files = sorted(each for each in directory.iterdir() if each.suffix in _SUFFIXES)
    except FileNotFoundError:
        files = []
    if not files:
        raise ConflistError(f"no network configuration in {directory}")
    found = distrust(files[0])
    if found is not None:
        raise ConflistError(f"network configuration {files[0]} is not used: {found}")
    return parse_conflist(files[0].read_bytes(), files[0])


def parse_conflist(text: bytes, file: Path) -> Conflist:
    """A configuration, a list of plugins or a single one. Raises ConflistError."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConflistError(f"{file} is no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise ConflistError(f"{file} names no network")
    plugins = document.get("plugins", [document])
    if not isinstance(plugins, list) or not plugins or not all(map(_is_plugin, plugins)):
        raise ConflistError(f"{file} has no plugins, or one without a type")
    version = document.get("cniVersion", "0.2.0")
    return Conflist(document["name"], version, tuple(plugins), file)


def plugin_input(
    network: Conflist,
    plugin: Mapping[str, Any],
    arguments: Mapping[str, Any],
    previous: Mapping[str, Any] | None,
) -> bytes:
    """What a plugin reads: its configuration, with what it asked for and what came before it."""
    document = {**plugin, "name": network.name, "cniVersion": network.version}
    wanted = {name: value for name, value in arguments.items() if _wants(plugin, name)}
    document.pop("capabilities", None)
    if wanted:
        document["runtimeConfig"] = wanted
    if previous is not None:
        document["prevResult"] = previous
    return msgspec.json.encode(document)


def is_result(answer: Mapping[str, Any]) -> bool:
    """Whether an answer is what a chain should answer: its parts are of the right kinds."""
    return _result(answer) is not None


def addresses_of(answer: Mapping[str, Any], interface: str) -> tuple[str, ...]:
    """The addresses a chain gave an interface in the sandbox, IPv4 first; none in nonsense.

    Source: CNI specification, "Result": `ips[].interface` is an index into `interfaces`; before
    0.3 there were `ip4` and `ip6` instead.
    """
    result = _result(answer)
    if result is None:
        return ()
    found = [each.ip for each in (result.ip4, result.ip6) if each is not None]
    interfaces = result.interfaces or ()
    for entry in result.ips or ():
        if entry.interface is not None and 0 <= entry.interface < len(interfaces):
            device = interfaces[entry.interface]
            if device.name != interface or not device.sandbox:
                continue
        found.append(entry.address)
    addresses = [each.partition("/")[0] for each in found]
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


def _wants(plugin: Mapping[str, Any], capability: str) -> bool:
    capabilities = plugin.get("capabilities")
    return isinstance(capabilities, dict) and bool(capabilities.get(capability))


def _is_plugin(plugin: object) -> bool:
    return isinstance(plugin, dict) and isinstance(plugin.get("type"), str) and bool(plugin["type"])

"""Handlers of another engine's configuration, as handler files and classes of our own.

A `FormerHandler` is what every reader of a configuration gives. Its file has the form of
`moorage.engine.handlers.definition`; its class has the handler's name, and the isolation label
where the runtime is a known one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.runtime_group import ISOLATION_LABEL
from moorage.migrate.rules.policies import isolation_of

SUFFIX = ".toml"
_RUNC_TYPES = frozenset({"io.containerd.runc.v1", "io.containerd.runc.v2"})
_LINUX_V1 = "io.containerd.runtime.v1.linux"
_RUNSC_TYPE = "io.containerd.runsc.v1"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_RUNTIME_TYPE = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")


class FormerHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler as its engine knew it. `left_out` are settings that a handler file cannot have."""

    name: str
    adapter: str
    binary: str
    options: Mapping[str, Any] = {}
    annotations: tuple[str, ...] = ()
    container_annotations: tuple[str, ...] = ()
    snapshotter: str = ""
    privileged_without_host_devices: bool = False
    is_default: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def isolation(self) -> str:
        """Return the isolation level of the runtime, empty if it is not a known one."""
        return isolation_of(self.name) or isolation_of(self.binary.rpartition("/")[2])


def command_line(name: str, binary: str, **settings: Any) -> FormerHandler:
    """Return a handler that is driven by its command line: runsc's or runc's."""
    adapter = "runsc" if binary.rpartition("/")[2] == "runsc" else "oci"
    return FormerHandler(name=name, adapter=adapter, binary=binary, **settings)


def shim(
    name: str, runtime_type: str, options: Mapping[str, Any], *, path: str = "", **settings: Any
) -> FormerHandler | None:
    """Return a handler of a containerd runtime type with its options table.

    `path` is the shim's where the configuration gives it. runc's shims and runsc's without a
    configuration of its own are driven by their command line instead. None for a type that is no
    runtime type.
    """
    root = options.get("Root") if isinstance(options.get("Root"), str) else None
    chosen = {"root": root} if root and root.startswith("/") else {}
    if runtime_type in (*_RUNC_TYPES, _LINUX_V1, ""):
        binary = options.get("BinaryName")
        flags = {
            key: True
            for key, option in (
                ("no_pivot_root", "NoPivotRoot"),
                ("no_new_keyring", "NoNewKeyring"),
            )
            if options.get(option) is True
        }
        binary = binary if isinstance(binary, str) and binary else "runc"
        is_gvisor = binary.rpartition("/")[2] == "runsc"
        return command_line(
            name, binary, options=chosen if is_gvisor else chosen | flags, **settings
        )
    config_path = options.get("ConfigPath")
    has_file = isinstance(config_path, str) and config_path.startswith("/")
    if runtime_type == _RUNSC_TYPE and not has_file:
        return command_line(name, "runsc", options=chosen, **settings)
    if not _RUNTIME_TYPE.fullmatch(runtime_type):
        return None
    type_url = options.get("TypeUrl")
    own: dict[str, Any] = {"runtime_type": runtime_type}
    if has_file:
        own["config_path"] = config_path
    if isinstance(type_url, str) and type_url:
        own["options_type_url"] = type_url
    short = "-".join(runtime_type.split(".")[-2:])
    binary = path or f"containerd-shim-{short}"
    return FormerHandler(name=name, adapter="shim", binary=binary, options=own, **settings)


def handler_file(handler: FormerHandler, origin: str) -> str:
    """Return the text of a handler's file; `origin` names the configuration it comes from."""
    lines = [
        f"# From {origin}.",
        f"adapter = {toml_value(handler.adapter)}",
        f"binary = {toml_value(handler.binary)}",
    ]
    if handler.annotations:
        lines.append(f"annotations = {toml_value(handler.annotations)}")
    if handler.container_annotations:
        lines.append(f"container_annotations = {toml_value(handler.container_annotations)}")
    if handler.snapshotter:
        lines.append(f"snapshotter = {toml_value(handler.snapshotter)}")
    if handler.privileged_without_host_devices:
        lines.append("privileged_without_host_devices = true")
    if handler.is_default:
        lines.append("default = true")
    if handler.options:
        lines += ["", "[options]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in handler.options.items()]
    return "\n".join(lines) + "\n"


def class_object(name: str, handler: str, isolation: str = "") -> dict[str, Any]:
    """Return a v1 RuntimeClass, with the isolation label unless the level is empty."""
    metadata: dict[str, Any] = {"name": name}
    if isolation:
        metadata["labels"] = {ISOLATION_LABEL: isolation}
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": metadata,
        "handler": handler,
    }


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, none for anything else."""
    return (
        tuple(item for item in value if isinstance(item, str) and item)
        if (isinstance(value, list))
        else ()
    )


def table(value: Any) -> dict[str, Any]:
    """Return a table, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a text, an empty one for anything else."""
    return value if isinstance(value, str) else ""


def toml_key(key: str) -> str:
    """Return a key in TOML's form, quoted where it must be."""
    return key if _BARE.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """Return a text, boolean, number or list of them in TOML's form."""
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for DEL.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return str(value)

"""containerd's configuration: the handlers of the CRI plugin's `runtimes` tables.

Source: containerd's docs/cri/config.md for configuration versions 1 to 4. The tables
`untrusted_workload_runtime` and `default_runtime` are those of containerd 1.1.
"""

from __future__ import annotations

from typing import Any

from moorage.runtimeclass.migration.handler_files import (
    FormerHandler,
    command_line,
    shim,
    table,
    text,
    texts,
)
from moorage.runtimeclass.migration.toml_edits import Keys

_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_KNOWN = frozenset(
    {
        "runtime_type", "runtime_path", "options", "pod_annotations", "container_annotations",
        "snapshotter", "privileged_without_host_devices", "runtime_engine", "runtime_root",
    }
)  # fmt: skip
_OPTIONS = frozenset({"BinaryName", "Root", "NoPivotRoot", "NoNewKeyring", "ConfigPath", "TypeUrl"})
# Values that say what a handler file does anyway.
_USUAL: dict[str, Any] = {
    "sandboxer": "podsandbox", "sandbox_mode": "podsandbox", "base_runtime_spec": "",
    "cni_conf_dir": "", "cni_max_conf_num": 0, "SystemdCgroup": False, "CriuImagePath": "",
    "CriuPath": "", "CriuWorkPath": "", "IoGid": 0, "IoUid": 0, "ShimCgroup": "", "io_type": "",
    "cgroup_writable": False, "privileged_without_host_devices_all_devices_allowed": False,
}  # fmt: skip
_FORMER_TABLES = {"untrusted_workload_runtime": "untrusted"}


def containerd_table(document: dict[str, Any]) -> Keys | None:
    """Return the path of the CRI plugin's containerd table, None if a document has none."""
    for plugin in _PLUGINS:
        settings = table(table(document.get("plugins")).get(plugin))
        if isinstance(settings.get("containerd"), dict):
            return ("plugins", plugin, "containerd")
    return None


def containerd_handlers(document: dict[str, Any]) -> list[FormerHandler]:
    """Return the handlers of a containerd configuration, in its order."""
    path = containerd_table(document)
    if path is None:
        return []
    settings: Any = document
    for step in path:
        settings = settings[step]
    default = text(settings.get("default_runtime_name"))
    entries = dict(table(settings.get("runtimes")))
    for key, name in _FORMER_TABLES.items():
        if isinstance(settings.get(key), dict):
            entries.setdefault(name, settings[key])
    handlers = [
        _handler(name, table(entry), is_default=name == default) for name, entry in entries.items()
    ]
    return [handler for handler in handlers if handler is not None]


def renamed_tables(document: dict[str, Any]) -> dict[Keys, str]:
    """Return the tables of containerd 1.1 that have another name since, each with that name's path.

    The path is that of the table; the text is the key below `runtimes`.
    """
    path = containerd_table(document)
    if path is None:
        return {}
    settings: Any = document
    for step in path:
        settings = settings[step]
    runtimes = table(settings.get("runtimes"))
    return {
        (*path, key): name
        for key, name in _FORMER_TABLES.items()
        if isinstance(settings.get(key), dict) and name not in runtimes
    }


def _handler(name: str, settings: dict[str, Any], *, is_default: bool) -> FormerHandler | None:
    options = table(settings.get("options"))
    left_out = [key for key in _unknown(settings, _KNOWN) if key != "options"]
    left_out += [f"options.{key}" for key in _unknown(options, _OPTIONS)]
    common: dict[str, Any] = {
        "annotations": texts(settings.get("pod_annotations")),
        "container_annotations": texts(settings.get("container_annotations")),
        "snapshotter": text(settings.get("snapshotter")),
        "privileged_without_host_devices": settings.get("privileged_without_host_devices") is True,
        "is_default": is_default,
        "left_out": tuple(sorted(left_out)),
    }
    runtime_type = text(settings.get("runtime_type"))
    if engine := text(settings.get("runtime_engine")):
        root = text(settings.get("runtime_root"))
        return command_line(name, engine, options={"root": root} if root else {}, **common)
    path = text(settings.get("runtime_path"))
    if runtime_type.startswith("/"):
        # An absolute path as a type, as containerd 1.4 to 1.7 allow it.
        program = runtime_type.rpartition("/")[2].removeprefix("containerd-shim-")
        short, _, version = program.rpartition("-")
        path, runtime_type = runtime_type, f"io.containerd.{short}.{version}"
    return shim(name, runtime_type, options, path=path, **common)


def _unknown(settings: dict[str, Any], known: frozenset[str]) -> list[str]:
    return [
        key
        for key, value in settings.items()
        if key not in known and (key not in _USUAL or _USUAL[key] != value)
    ]

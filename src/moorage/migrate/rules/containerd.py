"""containerd's configuration: the handlers of the CRI plugin's `runtimes` tables.

Source: containerd's docs/cri/config.md for configuration versions 1 to 4. The tables
`untrusted_workload_runtime` and `default_runtime` are those of containerd 1.1. Each version knows
its own name of the plugin; containerd ignores a table of another one.
"""

from __future__ import annotations

from typing import Any

from moorage.migrate.rules.handler_files import (
    FormerHandler,
    command_line,
    shim,
    table,
    text,
    texts,
    toml_key,
)
from moorage.migrate.rules.toml_edits import Keys

_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
# A file without a version may be a part of a file that states it.
_READ_BY = {1: _PLUGINS[:2], 2: _PLUGINS[:0:-1], 3: _PLUGINS[2:], 4: _PLUGINS[2:]}
_IMPORTS = "imports"
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
FORMER_TABLES = {"untrusted_workload_runtime": "untrusted"}
"""Tables of one handler in the CRI plugin's table, and the handler's name."""


def is_containerd(document: dict[str, Any]) -> bool:
    """Return whether a TOML document is a configuration of containerd, or imports some."""
    if isinstance(document.get(_IMPORTS), list) and ("version" in document or "root" in document):
        return True
    return bool(_plugins_with_handlers(document))


def containerd_table(document: dict[str, Any]) -> Keys | None:
    """Return the path of the table that containerd reads handlers from, None without one."""
    known = _READ_BY.get(config_version(document), _PLUGINS)
    present = _plugins_with_handlers(document)
    return next((("plugins", name, "containerd") for name in known if name in present), None)


def ignored_tables(document: dict[str, Any]) -> list[str]:
    """Return the tables with handlers that containerd ignores, for the version of the file."""
    read = containerd_table(document)
    return [
        f"plugins.{toml_key(name)}.containerd"
        for name in _plugins_with_handlers(document)
        if read is None or name != read[1]
    ]


def config_version(document: dict[str, Any]) -> int:
    """Return the configuration version that a document states, 0 if it states none."""
    version = document.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 0


def imports_of(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the paths and patterns that a document imports, in their order."""
    return texts(document.get(_IMPORTS))


def containerd_settings(document: dict[str, Any]) -> dict[str, Any]:
    """Return the table that containerd reads handlers from, an empty one without it."""
    settings: Any = document
    for step in containerd_table(document) or ():
        settings = settings[step]
    return settings if settings is not document else {}


def containerd_default(settings: dict[str, Any]) -> str:
    """Return the name of the default handler in the CRI plugin's containerd table."""
    return text(settings.get("default_runtime_name"))


def containerd_handlers(settings: dict[str, Any]) -> list[FormerHandler]:
    """Return the handlers of the CRI plugin's containerd table, in its order."""
    default = containerd_default(settings)
    entries = dict(table(settings.get("runtimes")))
    for key, name in FORMER_TABLES.items():
        if isinstance(settings.get(key), dict):
            entries.setdefault(name, settings[key])
    handlers = [
        _handler(name, table(entry), is_default=name == default) for name, entry in entries.items()
    ]
    return [handler for handler in handlers if handler is not None]


def _plugins_with_handlers(document: dict[str, Any]) -> list[str]:
    plugins = table(document.get("plugins"))
    return [
        name for name in _PLUGINS if isinstance(table(plugins.get(name)).get("containerd"), dict)
    ]


def renamed_tables(document: dict[str, Any]) -> dict[Keys, str]:
    """Return the tables of containerd 1.1 that have another name since, each with that name's path.

    The path is that of the table; the text is the key below `runtimes`.
    """
    path = containerd_table(document)
    if path is None:
        return {}
    settings = containerd_settings(document)
    runtimes = table(settings.get("runtimes"))
    return {
        (*path, key): name
        for key, name in FORMER_TABLES.items()
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

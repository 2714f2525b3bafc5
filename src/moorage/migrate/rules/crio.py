"""CRI-O's configuration: the handlers of `crio.runtime.runtimes`.

Source: crio.conf(5). `runtime_untrusted_workload` is that of CRI-O up to 1.12, for pods without
the annotation TrustedSandbox: it becomes the handler `untrusted`.
"""

from __future__ import annotations

from typing import Any

from moorage.migrate.rules.handler_files import FormerHandler, command_line, shim, table, text

_KNOWN = frozenset(
    {
        "runtime_path", "runtime_type", "runtime_root", "runtime_config_path",
        "privileged_without_host_devices", "inherit_default_runtime",
    }
)  # fmt: skip
_MONITORS = frozenset({"monitor_path", "monitor_cgroup", "monitor_exec_cgroup", "monitor_env"})
_UNTRUSTED = "untrusted"
_INHERITED = ("runtime_path", "runtime_type", "runtime_root", "runtime_config_path")


def is_crio(document: dict[str, Any]) -> bool:
    """Return whether a TOML document is a configuration of CRI-O with handlers."""
    runtime = table(table(document.get("crio")).get("runtime"))
    return any(
        key in runtime for key in ("runtimes", "default_runtime", "runtime_untrusted_workload")
    )


def crio_handlers(document: dict[str, Any]) -> list[FormerHandler]:
    """Return the handlers of a crio.conf or a drop-in, in its order."""
    runtime = table(table(document.get("crio")).get("runtime"))
    default = text(runtime.get("default_runtime"))
    entries = table(runtime.get("runtimes"))
    handlers = [
        _handler(name, _inherited(table(entry), entries, default), is_default=name == default)
        for name, entry in entries.items()
    ]
    if untrusted := text(runtime.get("runtime_untrusted_workload")):
        handlers.append(command_line(_UNTRUSTED, untrusted))
    return [handler for handler in handlers if handler is not None]


def heirs_without_default(document: dict[str, Any]) -> list[str]:
    """Return the handlers that inherit from a default runtime which the document does not name."""
    runtime = table(table(document.get("crio")).get("runtime"))
    if text(runtime.get("default_runtime")):
        return []
    return [
        name for name, entry in table(runtime.get("runtimes")).items() if _is_heir(table(entry))
    ]


def _is_heir(settings: dict[str, Any]) -> bool:
    return settings.get("inherit_default_runtime") is True


def _inherited(settings: dict[str, Any], entries: dict[str, Any], default: str) -> dict[str, Any]:
    """Return the settings of a handler, with those of the default runtime where it asks so.

    All four are replaced, also by an empty value; a default without a path is looked up by its
    name.
    """
    if not _is_heir(settings) or not default:
        return settings
    heir = {key: value for key, value in settings.items() if key not in _INHERITED}
    source = table(entries.get(default))
    heir |= {key: source[key] for key in _INHERITED if key in source}
    return heir | {"runtime_path": text(source.get("runtime_path")) or default}


def _handler(name: str, settings: dict[str, Any], *, is_default: bool) -> FormerHandler | None:
    left_out = tuple(
        sorted(
            key
            for key, value in settings.items()
            if key not in _KNOWN | _MONITORS and value not in ("", [], {}, False, 0)
        )
    )
    path, root = text(settings.get("runtime_path")), text(settings.get("runtime_root"))
    common: dict[str, Any] = {
        "is_default": is_default,
        "privileged_without_host_devices": settings.get("privileged_without_host_devices") is True,
        "left_out": left_out,
    }
    if text(settings.get("runtime_type")) == "vm":
        program = (path or "containerd-shim-kata-v2").rpartition("/")[2]
        short, _, version = program.removeprefix("containerd-shim-").rpartition("-")
        config_path = text(settings.get("runtime_config_path"))
        options = {"ConfigPath": config_path} if config_path else {}
        return shim(name, f"io.containerd.{short}.{version}", options, path=path, **common)
    return command_line(name, path or name, options={"root": root} if root else {}, **common)

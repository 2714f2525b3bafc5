"""CRI-O's configuration: the handlers of `crio.runtime.runtimes`.

Source: crio.conf(5). `runtime_untrusted_workload` is that of CRI-O up to 1.12, for pods without
the annotation TrustedSandbox: it becomes the handler `untrusted`.
"""

from __future__ import annotations

from typing import Any

from moorage.runtimeclass.migration.handler_files import (
    FormerHandler,
    command_line,
    shim,
    table,
    text,
)

_KNOWN = frozenset(
    {
        "runtime_path", "runtime_type", "runtime_root", "runtime_config_path",
        "privileged_without_host_devices",
    }
)  # fmt: skip
_MONITORS = frozenset({"monitor_path", "monitor_cgroup", "monitor_exec_cgroup", "monitor_env"})
_UNTRUSTED = "untrusted"


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
    handlers = [
        _handler(name, table(entry), is_default=name == default)
        for name, entry in table(runtime.get("runtimes")).items()
    ]
    if untrusted := text(runtime.get("runtime_untrusted_workload")):
        handlers.append(command_line(_UNTRUSTED, untrusted))
    return [handler for handler in handlers if handler is not None]


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

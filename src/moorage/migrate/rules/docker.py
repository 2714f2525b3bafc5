"""Docker's `daemon.json`: the handlers of its `runtimes`, and which is the default.

Source: dockerd "Configure container runtimes": `path` with `runtimeArgs` for a command line,
`runtimeType` with `options` for a containerd shim.
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
)

_PATH_KEYS = frozenset({"path", "runtimeArgs"})
_SHIM_KEYS = frozenset({"runtimeType", "options"})


def is_docker(document: dict[str, Any]) -> bool:
    """Return whether a JSON document without `kind` is a configuration of dockerd with runtimes."""
    return isinstance(document.get("runtimes"), dict) or isinstance(
        document.get("default-runtime"), str
    )


def docker_handlers(document: dict[str, Any]) -> list[FormerHandler]:
    """Return the handlers of a daemon.json, in its order."""
    default = text(document.get("default-runtime"))
    handlers: list[FormerHandler] = []
    for name, entry in table(document.get("runtimes")).items():
        settings = table(entry)
        runtime_type = text(settings.get("runtimeType"))
        known = _SHIM_KEYS if runtime_type else _PATH_KEYS
        left_out = tuple(sorted(set(settings) - known))
        is_default = name == default
        if runtime_type:
            options = table(settings.get("options"))
            handler = shim(name, runtime_type, options, is_default=is_default, left_out=left_out)
        else:
            arguments = texts(settings.get("runtimeArgs"))
            handler = command_line(
                name,
                text(settings.get("path")) or name,
                options={"global_arguments": arguments} if arguments else {},
                is_default=is_default,
                left_out=left_out,
            )
        if handler is not None:
            handlers.append(handler)
    return handlers

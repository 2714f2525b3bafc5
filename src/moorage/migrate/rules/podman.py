"""Podman's `containers.conf`: the handlers of `[engine.runtimes]`, and which is the default.

Source: containers.conf(5): each runtime is a list of paths of which the first that exists is used.
"""

from __future__ import annotations

from typing import Any

from moorage.migrate.rules.handler_files import FormerHandler, command_line, table, text, texts


def is_podman(document: dict[str, Any]) -> bool:
    """Return whether a TOML document is a containers.conf with runtimes."""
    engine = table(document.get("engine"))
    return "runtimes" in engine or "runtime" in engine


def podman_handlers(document: dict[str, Any]) -> list[FormerHandler]:
    """Return the handlers of a containers.conf, in its order.

    A runtime with several paths is looked up by its program's name, as a handler file does it.
    """
    engine = table(document.get("engine"))
    default = text(engine.get("runtime"))
    handlers = []
    for name, entry in table(engine.get("runtimes")).items():
        paths = texts(entry)
        if not paths:
            continue
        binary = paths[0] if len(paths) == 1 else paths[0].rpartition("/")[2]
        handlers.append(command_line(name, binary, is_default=name == default))
    return handlers

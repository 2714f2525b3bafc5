"""Pod bridge of an external engine, if its CNI configuration names one.

Both containerd and CRI-O read `/etc/cni/net.d` by default, and use the first file.
Source: libcni `ConfFiles`, CNI plugin bridge.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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

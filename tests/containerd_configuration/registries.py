"""containerd registry mirrors: one directory with a `hosts.toml` for each registry.

Read at every pull, so that a change needs no restart. A mirror is asked first, the registry itself
if the mirror has no answer. Source: containerd, "Registry Configuration".
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.containerd_configuration.toml import Table, write_toml

DEFAULT = "_default"
"""The directory whose file applies to every registry without one of its own."""

_SERVERS = {"docker.io": "https://registry-1.docker.io"}


def hosts_files(mirrors: Mapping[str, str]) -> dict[str, str]:
    """Return directory name → text of its `hosts.toml`, for mirrors given as registry → URL.

    The registry `*` means all without a mirror of their own. Raises ValueError for a mirror that is
    not an http or https URL.
    """
    return {
        (DEFAULT if registry == "*" else registry): _hosts_file(registry, mirror)
        for registry, mirror in sorted(mirrors.items())
    }


def _hosts_file(registry: str, mirror: str) -> str:
    url = urlsplit(mirror)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise ValueError(
            f"the mirror {mirror!r} of registry {registry!r} is no http:// or https:// URL"
        )
    capabilities = {"capabilities": ["pull", "resolve"]}
    document: Table = {"host": {mirror.rstrip("/"): capabilities}}
    if registry != "*":
        document = {"server": _SERVERS.get(registry, f"https://{registry}"), **document}
    return write_toml(document)

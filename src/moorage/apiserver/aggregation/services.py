"""Extension services: the APIServices that name a service, as the stored objects say.

A group and version that this server serves itself stays with it, whatever an APIService says.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence

import msgspec

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import Change, WatchCache

_TABLE = API_SERVICE.prefix("")
_PORT = 443


class Extension(msgspec.Struct, frozen=True):
    """An APIService with a service: where a group and version is served, and in which order.

    `bundle` is in PEM. `is_available`: whether requests are passed on.
    """

    name: str
    group: str
    version: str
    namespace: str
    service: str
    port: int
    bundle: bytes
    is_insecure: bool
    is_available: bool
    group_priority: int
    version_priority: int

    @property
    def server_name(self) -> str:
        """Return the name that the server's certificate must have."""
        return f"{self.service}.{self.namespace}.svc"

    @property
    def path(self) -> str:
        """Return the path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


def extension_of(api_service: Obj) -> Extension | None:
    """Return the extension of an APIService, None for a local one."""
    spec = api_service.get("spec", {})
    service = spec.get("service")
    if service is None:
        return None
    try:
        bundle = base64.b64decode(spec.get("caBundle", ""))
    except (binascii.Error, ValueError):
        bundle = b""
    return Extension(
        name=api_service["metadata"]["name"],
        group=spec.get("group", ""),
        version=spec.get("version", ""),
        namespace=service.get("namespace", ""),
        service=service.get("name", ""),
        port=service.get("port", _PORT),
        bundle=bundle,
        is_insecure=bool(spec.get("insecureSkipTLSVerify")),
        is_available=any(
            condition.get("type") == "Available" and condition.get("status") == "True"
            for condition in api_service.get("status", {}).get("conditions", ())
        ),
        group_priority=spec.get("groupPriorityMinimum", 0),
        version_priority=spec.get("versionPriority", 0),
    )


class Extensions:
    """The extension services of now. Give `changed` to the store."""

    def __init__(self, cache: WatchCache[Stored], resource_map: ResourceMap) -> None:
        self._cache = cache
        self._resource_map = resource_map
        self._read: dict[tuple[str, str], Extension] | None = None
        self._map_changes = -1

    def changed(self, changes: Iterable[Change]) -> None:
        """Forget what was read if an APIService is among the changes."""
        if any(change.key.startswith(_TABLE) for change in changes):
            self._read = None

    def find(self, group: str, version: str) -> Extension | None:
        """Return the extension that serves a group and version, None for this server's own."""
        return self._by_place().get((group, version))

    def all(self) -> Sequence[Extension]:
        """Return every extension, in the order of names."""
        return list(self._by_place().values())

    def _by_place(self) -> dict[tuple[str, str], Extension]:
        if self._read is None or self._map_changes != self._resource_map.changes:
            self._map_changes = self._resource_map.changes
            found = (extension_of(item.obj) for item in self._cache.scan(_TABLE))
            self._read = {
                (extension.group, extension.version): extension
                for extension in found
                if extension is not None
                and not self._resource_map.has_version(extension.group, extension.version)
            }
        return self._read

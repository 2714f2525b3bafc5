"""API discovery: the resources that a server serves.

Each resource is returned in one version, the group's preferred one if it has the resource: the
objects are the same in all versions. Source: API docs "Discovery API"; `metav1.APIResourceList`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import msgspec

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import Object
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import Client, UnreachableError

_T = TypeVar("_T")

SECOND_HOMES = {
    ("extensions", "deployments"): ("apps", "deployments"),
    ("events.k8s.io", "events"): ("", "events"),
}
"""Maps an alias (group, plural) to the (group, plural) that serves the same objects."""


class _ApiResource(Object, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ApiResourceList(Object, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


class _ApiVersions(Object, frozen=True):
    versions: tuple[str, ...] = ()


class _GroupVersion(Object, frozen=True):
    group_version: str = ""
    version: str = ""


class _ApiGroup(Object, frozen=True):
    name: str = ""
    versions: tuple[_GroupVersion, ...] = ()
    preferred_version: _GroupVersion = _GroupVersion()


class _ApiGroupList(Object, frozen=True):
    groups: tuple[_ApiGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource, read for metadata only, with its verbs and the names of its subresources."""

    resource: Resource[PartialObject]
    verbs: frozenset[str]
    subresources: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Discovered:
    """Result of a discovery. `failures` are (group version, reason) of the unreadable ones."""

    served: tuple[ServedResource, ...]
    failures: tuple[tuple[str, str], ...] = ()

    def with_verbs(self, *verbs: str) -> list[Resource[PartialObject]]:
        """Return the resources that support all of these verbs."""
        return [served.resource for served in self.served if served.verbs.issuperset(verbs)]


async def discover(client: Client) -> Discovered:
    """Return the resources of all groups and versions; concurrent requests, one per group version.

    A group version that cannot be read is reported in `failures`. Raises StatusError and
    UnreachableError when the list of groups cannot be read.
    """
    core, groups = await asyncio.gather(
        client.request("GET", "/api"), client.request("GET", "/apis")
    )
    versions = list(_decode(core, _ApiVersions).versions)
    for group in _decode(groups, _ApiGroupList).groups:
        if not group.versions:
            continue
        preferred = group.preferred_version.version or group.versions[0].version
        others = [entry.version for entry in group.versions if entry.version != preferred]
        versions += [f"{group.name}/{version}" for version in (preferred, *others)]
    answers = await asyncio.gather(*(_try_version(client, version) for version in versions))
    resources: dict[tuple[str, str], ServedResource] = {}
    failures: list[tuple[str, str]] = []
    for version, answer in zip(versions, answers, strict=True):
        if isinstance(answer, str):
            failures.append((version, answer))
            continue
        for served in answer:
            # The preferred version comes first and takes precedence.
            resources.setdefault((served.resource.group, served.resource.plural), served)
    for place, home in SECOND_HOMES.items():
        if home in resources:
            resources.pop(place, None)
    return Discovered(tuple(resources.values()), tuple(failures))


async def read_version(client: Client, api_version: str) -> tuple[ServedResource, ...]:
    """Return the resources of one group version.

    Raises NotFoundError when the server does not serve it, and StatusError and UnreachableError.
    """
    group, _, version = api_version.rpartition("/")
    root = "apis" if group else "api"
    document = _decode(await client.request("GET", f"/{root}/{api_version}"), _ApiResourceList)
    names = [entry.name for entry in document.resources]
    return tuple(
        _served(group, version, entry, names)
        for entry in document.resources
        if "/" not in entry.name
    )


async def preferred_versions(client: Client, group: str) -> tuple[str, ...]:
    """Return the `apiVersion`s of a group, the preferred one first.

    Raises NotFoundError when the server does not serve the group, and StatusError and
    UnreachableError.
    """
    if not group:
        return _decode(await client.request("GET", "/api"), _ApiVersions).versions
    path = f"/apis/{quote(group, safe='')}"
    described = _decode(await client.request("GET", path), _ApiGroup)
    preferred = described.preferred_version.group_version
    others = (entry.group_version for entry in described.versions)
    return tuple(dict.fromkeys((*((preferred,) if preferred else ()), *others)))


async def _try_version(client: Client, api_version: str) -> tuple[ServedResource, ...] | str:
    try:
        return await read_version(client, api_version)
    except (StatusError, UnreachableError) as error:
        return str(error)


def _served(group: str, version: str, entry: _ApiResource, names: Iterable[str]) -> ServedResource:
    resource = Resource(
        group, version, entry.name, entry.kind, PartialObject, is_namespaced=entry.namespaced
    )
    prefix = f"{entry.name}/"
    subresources = frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return ServedResource(resource, frozenset(entry.verbs), subresources)


def _decode(body: bytes, type_: type[_T]) -> _T:
    return msgspec.json.decode(body, type=type_)


class NotServedError(LookupError):
    """The server does not serve a kind."""


class ServedKinds:
    """The resources of kinds, for any kind that a server serves. Each version is read once.

    A version is read again for a kind that it lacks if `follows`: definitions may add it meanwhile.
    """

    def __init__(self, client: Client, *, follows: bool = False) -> None:
        self._client = client
        self._follows = follows
        self._kinds: dict[str, dict[str, Resource[PartialObject]]] = {}

    async def resource(self, api_version: str, kind: str) -> Resource[PartialObject]:
        """Return the resource of a kind. Raises NotServedError, StatusError, UnreachableError."""
        kinds = self._kinds.get(api_version)
        if kinds is None or (self._follows and kind not in kinds):
            kinds = await self._read(api_version)
        if kind not in kinds:
            raise NotServedError(f"{api_version} {kind}")
        return kinds[kind]

    async def _read(self, api_version: str) -> dict[str, Resource[PartialObject]]:
        try:
            served = await read_version(self._client, api_version)
        except NotFoundError:
            served = ()
        kinds = {entry.resource.kind: entry.resource for entry in served}
        self._kinds[api_version] = kinds
        return kinds

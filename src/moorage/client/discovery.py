"""API discovery: the resources that a server has.

Source: API docs "Discovery API"; `metav1.APIResourceList`. One version of a resource is enough:
objects are the same in all of them, so the group's preferred version is taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from moorage.api.errors import StatusError
from moorage.api.meta import Object
from moorage.client.resources import PartialObject, Resource
from moorage.client.rest import Client, UnreachableError

_T = TypeVar("_T")

SECOND_HOMES = {
    ("extensions", "deployments"): ("apps", "deployments"),
    ("events.k8s.io", "events"): ("", "events"),
}
"""(group, plural) under which a server shows the objects of another resource again."""


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
    """A resource, read for metadata only, and what can be done with it."""

    resource: Resource[PartialObject]
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Discovered:
    """What was found, and for each group version that could not be read, why."""

    served: tuple[ServedResource, ...]
    failures: tuple[tuple[str, str], ...] = ()

    def with_verbs(self, *verbs: str) -> list[Resource[PartialObject]]:
        """Return the resources that support all of these verbs."""
        return [served.resource for served in self.served if served.verbs.issuperset(verbs)]


async def discover(client: Client) -> Discovered:
    """Read it all. Raises StatusError, UnreachableError when there is not even a list of groups."""
    core, groups = await asyncio.gather(
        client.request("GET", "/api"), client.request("GET", "/apis")
    )
    versions = list(_decode(core, _ApiVersions).versions)
    for group in _decode(groups, _ApiGroupList).groups:
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
            # The preferred version comes first and stays.
            resources.setdefault((served.resource.group, served.resource.plural), served)
    for place, home in SECOND_HOMES.items():
        if home in resources:
            resources.pop(place, None)
    return Discovered(tuple(resources.values()), tuple(failures))


async def read_version(client: Client, api_version: str) -> tuple[ServedResource, ...]:
    """Return the resources of one group version, without subresources.

    Raises NotFoundError when the server does not serve it, StatusError, UnreachableError.
    """
    group, _, version = api_version.rpartition("/")
    root = "apis" if group else "api"
    document = _decode(await client.request("GET", f"/{root}/{api_version}"), _ApiResourceList)
    return tuple(
        _served(group, version, entry) for entry in document.resources if "/" not in entry.name
    )


async def _try_version(client: Client, api_version: str) -> tuple[ServedResource, ...] | str:
    try:
        return await read_version(client, api_version)
    except (StatusError, UnreachableError) as error:
        return str(error)


def _served(group: str, version: str, entry: _ApiResource) -> ServedResource:
    resource = Resource(
        group, version, entry.name, entry.kind, PartialObject, is_namespaced=entry.namespaced
    )
    return ServedResource(resource, frozenset(entry.verbs))


def _decode(body: bytes, type_: type[_T]) -> _T:
    return msgspec.json.decode(body, type=type_)

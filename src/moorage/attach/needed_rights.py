"""Needed rights: what `moor attach` and `moor detach` do in a cluster, as rights. Pure.

tests/attach/test_needed_rights.py compares them with what an API server was asked for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.errors import ForbiddenError
from moorage.api.meta import Raw
from moorage.attach.class_uses import TEMPLATE_RESOURCES
from moorage.attach.manifests import KINDS, WORKLOADS
from moorage.attach.manifests.identity import FOLLOW, Obj
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.served_objects import ServedObjects
from moorage.attach.values import OWN, Values
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.wire.client.discovery import NotServedError
from moorage.wire.client.resources import (
    CLUSTER_RUNTIME_POLICIES,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RUNTIME_CLASS_QUOTAS,
    RUNTIME_CLASSES,
    RUNTIME_INSTALLATIONS,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
    RUNTIME_ROLLOUTS,
    SECRETS,
    STATEFUL_SETS,
    Resource,
)
from moorage.wire.client.rest import Client

# Rights of the user who attaches or detaches: what is needed, and which of it the user lacks.
#
# What is needed is decided purely; `Reviewer` asks the API server, by SelfSubjectAccessReviews. A
# role is written by who has each right in it or the verb `escalate`, bound by who has them or
# `bind`. Source: Kubernetes docs "Using RBAC Authorization", "Privilege escalation prevention".

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 16
_RBAC = "rbac.authorization.k8s.io"
_ROLES = {"ClusterRole": "clusterroles", "Role": "roles"}
_BINDINGS = ("ClusterRoleBinding", "RoleBinding")

Kind = tuple[str, str]
"""API version and kind."""


class Right(msgspec.Struct, frozen=True, order=True):
    """A verb on a resource, `PLURAL` or `PLURAL/SUBRESOURCE`; in all namespaces if none is given.

    names: the objects that it is needed for, where those are known. path: that of a right on no
    resource.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    names: tuple[str, ...] = ()
    path: str = ""


class Grant(msgspec.Struct, frozen=True):
    """A role or binding that is to be written: either `verb` is needed, or all of `rights`."""

    verb: Right
    rights: tuple[Right, ...]


def rights_on(
    resources: Mapping[Kind, Resource[Any]], objects: Iterable[Obj], verbs: Iterable[str]
) -> Iterator[Right]:
    """Yield the rights to do something with each of the objects, those of a kind together.

    Kinds that the API server does not serve are left out.
    """
    names: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for obj in objects:
        if resource := resources.get((obj["apiVersion"], obj["kind"])):
            metadata = obj["metadata"]
            place = (resource.group, resource.plural, metadata.get("namespace", ""))
            names[place].append(metadata["name"])
    for verb in verbs:
        for (group, plural, namespace), found in names.items():
            # What is created has no name yet for the authorizer.
            known = () if verb == "create" else tuple(sorted(found))
            yield Right(verb, group, plural, namespace, known)


def rights_to(
    verbs: Sequence[str],
    resources: Iterable[Resource[Any]],
    *,
    namespace: str = "",
    subresource: str = "",
) -> Iterator[Right]:
    """Yield the rights to do something with all objects of resources."""
    for resource in resources:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        for verb in verbs:
            yield Right(verb, resource.group, plural, namespace)


def grants(wanted: Sequence[Obj], other_roles: Mapping[str, Sequence[Raw]]) -> Iterator[Grant]:
    """Yield the rights that roles and bindings among the wanted objects grant.

    other_roles: the rules of ClusterRoles by name, which are not wanted but bound.
    """
    rules = {
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj["rules"]
        for obj in wanted
        if obj["kind"] in _ROLES
    }
    for obj in wanted:
        kind, metadata = obj["kind"], obj["metadata"]
        namespace = metadata.get("namespace", "")
        if kind in _ROLES:
            verb = Right("escalate", _RBAC, _ROLES[kind], namespace, (metadata["name"],))
            yield Grant(verb, tuple(_rights_of(obj["rules"], namespace)))
        elif kind in _BINDINGS:
            role, name = obj["roleRef"]["kind"], obj["roleRef"]["name"]
            place = namespace if role == "Role" else ""
            known = rules.get((role, place, name), other_roles.get(name))
            verb = Right("bind", _RBAC, _ROLES[role], place, (name,))
            rights = (verb,) if known is None else tuple(_rights_of(known, namespace))
            yield Grant(verb, rights)


def bound_roles(wanted: Sequence[Obj]) -> set[str]:
    """Return the names of the ClusterRoles that are bound and not among the wanted objects."""
    bound = {
        obj["roleRef"]["name"]
        for obj in wanted
        if obj["kind"] in _BINDINGS and obj["roleRef"]["kind"] == "ClusterRole"
    }
    return bound - {obj["metadata"]["name"] for obj in wanted if obj["kind"] == "ClusterRole"}


def _rights_of(rules: Iterable[Raw], namespace: str) -> Iterator[Right]:
    for rule in rules:
        for verb in rule["verbs"]:
            for path in rule.get("nonResourceURLs") or ():
                yield Right(verb, path=path)
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    names = tuple(rule.get("resourceNames") or ())
                    yield Right(verb, group, resource, namespace, names)


def described(rights: Iterable[Right]) -> str:
    """Return rights for a reader: those with the same verbs and place together."""
    verbs: defaultdict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for right in rights:
        full = f"{right.resource}.{right.group}" if right.group else right.resource
        key = (right.namespace, right.path or full, right.names)
        if right.verb not in verbs[key]:
            verbs[key].append(right.verb)
    together: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (namespace, what, _), found in verbs.items():
        phrase = (", ".join(found), namespace)
        if what not in together[phrase]:
            together[phrase].append(what)
    return "; ".join(
        f"{found} {', '.join(whats)}" + (f" in namespace {namespace}" if namespace else "")
        for (found, namespace), whats in together.items()
    )


_EVERYTHING = Right("*", "*", "*")
"""What administrators may: asked first, since it spares them all other questions."""


class Reviewer:
    """Asks the API server which rights the user has. Raises StatusError, UnreachableError."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._answers: dict[Right, asyncio.Task[bool]] = {}

    async def missing(self, rights: Iterable[Right]) -> tuple[Right, ...]:
        """Return the rights that the user lacks."""
        asked = tuple(dict.fromkeys(rights))
        if not asked or await self._may(_EVERYTHING):
            return ()
        answers = await asyncio.gather(*(self._may(right) for right in asked))
        return tuple(right for right, may in zip(asked, answers, strict=True) if not may)

    async def ungranted(self, wanted: Iterable[Grant]) -> tuple[Right, ...]:
        """Return the rights that the user lacks to write roles and bindings."""
        if await self._may(_EVERYTHING):
            return ()
        lacking = [grant for grant in wanted if not await self._may(grant.verb)]
        return await self.missing(right for grant in lacking for right in grant.rights)

    async def _may(self, right: Right) -> bool:
        """Ask for the kind first, and only who may not do it for all objects for each of them."""
        if right not in self._answers:
            self._answers[right] = asyncio.ensure_future(self._review(right))
        return await self._answers[right]

    async def _review(self, right: Right) -> bool:
        if await self._ask(right, ""):
            return True
        if not right.names:
            return False
        answers = await asyncio.gather(*(self._ask(right, name) for name in right.names))
        return all(answers)

    async def _ask(self, right: Right, name: str) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb, "group": right.group, "resource": resource,
            "subresource": subresource, "namespace": right.namespace, "name": name,
        }  # fmt: skip
        spec: Raw = {"resourceAttributes": {key: text for key, text in attributes.items() if text}}
        if right.path:
            spec = {"nonResourceAttributes": {"path": right.path, "verb": right.verb}}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        }
        async with self._slots:
            body = await self._client.request("POST", _REVIEWS, body=msgspec.json.encode(review))
        return bool(msgspec.json.decode(body).get("status", {}).get("allowed"))


async def served_resources(
    served: ServedObjects, kinds: Iterable[Kind]
) -> dict[Kind, Resource[Any]]:
    """Return the resources of the kinds that the API server serves."""
    found = {}
    for kind in kinds:
        try:
            found[kind] = await served.resource(*kind)
        except NotServedError:
            continue
    return found


async def rules_of(served: ServedObjects, names: Iterable[str]) -> dict[str, list[Raw]]:
    """Return the rules of those ClusterRoles that exist and that the user may read."""
    found = {}
    for name in sorted(names):
        role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        try:
            read = await served.get(role)
        except ForbiddenError:
            continue
        if read is not None:
            found[name] = read.get("rules") or []
    return found


_FOLLOWED = (DEPLOYMENTS, DAEMON_SETS, PODS, EVENTS)
"""What is watched in a namespace while parts start and end."""
_MARKED = (
    NAMESPACES, NODES, PODS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS, REPLICA_SETS,
)  # fmt: skip
"""What the parts write labels, annotations and gates on."""
_OF_USERS = (
    CLUSTER_RUNTIME_POLICIES, RUNTIME_CLASS_QUOTAS, RUNTIME_INSTALLATIONS, RUNTIME_POLICIES,
    RUNTIME_PROFILES, RUNTIME_ROLLOUTS,
)  # fmt: skip


def attach_rights(
    values: Values, wanted: Sequence[Obj], resources: Mapping[Kind, Resource[Any]]
) -> Iterator[Right]:
    """Yield the rights that an attachment of the wanted objects needs, but for removals.

    resources: those of the kinds that the API server serves.
    """
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values.namespace}}]
    yield from rights_on(resources, [*namespaces, *wanted], ["get"])
    # An apply creates what is not there.
    yield from rights_on(resources, wanted, ["create", "patch"])
    yield from rights_to(["list"], _labelled(resources))
    yield from rights_to(["list"], (NODES, PODS, RUNTIME_CLASSES))
    yield from rights_to(FOLLOW, (CUSTOM_RESOURCE_DEFINITIONS, RUNTIME_PROFILES))
    yield from rights_to(FOLLOW, _FOLLOWED, namespace=values.namespace)
    if values.certificates == OWN:
        yield Right("get", SECRETS.group, SECRETS.plural, values.namespace, (SECRET,))


def look_rights(resources: Mapping[Kind, Resource[Any]]) -> Iterator[Right]:
    """Yield the rights that a detachment needs to read its objects."""
    yield from rights_to(["list"], _labelled(resources))
    listed: tuple[Resource[Any], ...] = (*_MARKED, *TEMPLATE_RESOURCES, RUNTIME_CLASSES, *_OF_USERS)
    yield from rights_to(["list"], dict.fromkeys(listed))


def detach_rights(
    found: Sequence[Obj], made: Iterable[Obj], resources: Mapping[Kind, Resource[Any]]
) -> Iterator[Right]:
    """Yield the rights that a detachment needs to remove what it found.

    made: what the parts made for themselves. Traces on objects of others may be written until the
    parts have ended, so that the rights to remove them are needed whether there are any or not.
    """
    yield from rights_on(resources, [*found, *made], ["delete"])
    yield from rights_to(FOLLOW, (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS, RUNTIME_INSTALLATIONS))
    yield from rights_to(["patch"], (*_MARKED, RUNTIME_CLASSES, *_OF_USERS))
    yield from rights_to(["patch"], (NODES, PODS), subresource="status")
    yield from rights_to(["get"], (PODS,))
    yield from rights_to(["delete"], (RUNTIME_CLASSES, RUNTIME_INSTALLATIONS))
    for namespace in sorted(
        {obj["metadata"].get("namespace", "") for obj in found if obj["kind"] in WORKLOADS}
    ):
        yield from rights_to(FOLLOW, _FOLLOWED, namespace=namespace)


def _labelled(resources: Mapping[Kind, Resource[Any]]) -> Iterator[Resource[Any]]:
    for kind in KINDS:
        if kind in resources:
            yield resources[kind]

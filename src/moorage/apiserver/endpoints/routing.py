"""Request routing: the target and verb of a request, from its method and path alone.

Authorization and dispatch both use them. Source: apiserver `RequestInfo`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from moorage.api.remembered import remembered
from moorage.apiserver.registry.rbac import Action

_WRITE_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Parts of the namespace path that belong to the namespace itself, not to a resource inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})

NO_VERB = ""
"""Verb of a method that has none, such as OPTIONS: only a rule for `*` allows it."""

STREAMS = frozenset({"exec", "attach", "portforward", "proxy", "log"})
"""Subresources that last as long as their client wants."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The resource or non-resource path that a URL names.

    `resource` is empty for paths outside the API's resources (`/healthz`, `/openapi/v3`),
    `is_watch` true for the deprecated `/watch/` form. `rest` is what follows the subresource.
    """

    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    is_watch: bool = False

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)


@remembered(4096)
def parse_path(path: str) -> Target:
    """Parse a URL path (already percent-decoded) and return its target."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _resource_target(path, "", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _resource_target(path, parts[1], parts[2], parts[3:])
    return Target(path=path)


def _resource_target(path: str, group: str, version: str, parts: list[str]) -> Target:
    is_watch = parts[0] == "watch" and len(parts) > 1
    if is_watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 2:
        namespace = parts[1]
        if len(parts) >= 3 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    return Target(
        path=path,
        group=group,
        version=version,
        resource=parts[0],
        namespace=namespace,
        name=parts[1] if len(parts) > 1 else "",
        subresource=parts[2] if len(parts) > 2 else "",
        rest="/".join(parts[3:]),
        is_watch=is_watch,
    )


def group_version_of(target: Target) -> tuple[str, str]:
    """Return the group and version that a path begins with, empty if it is not below one."""
    if target.is_resource:
        return target.group, target.version
    parts = [part for part in target.path.split("/") if part]
    if len(parts) == 3 and parts[0] == "apis":
        return parts[1], parts[2]
    return "", ""


class Route(msgspec.Struct, frozen=True):
    """A request without query: what it is about, and what is done to it."""

    target: Target
    verb: str
    action: Action


@remembered(4096)
def route_of(method: str, path: str) -> Route:
    """Return the route of a request without query."""
    target = parse_path(path)
    verb = verb_of(method, target, {})
    return Route(target, verb, action_of(verb, target))


def action_of(verb: str, target: Target, name: str = "") -> Action:
    """Return the action to authorize. `name` is the one object that a list is about."""
    if not target.is_resource:
        return Action(verb=verb, path=target.path)
    return Action(
        verb=verb,
        group=target.group,
        resource=target.resource,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name or name,
    )


def is_true(query: Mapping[str, str], key: str) -> bool:
    """Return a query boolean: absent, `0` and `false` are false, all else (even empty) is true.

    Case does not matter: the Python client writes `False`.
    """
    value = query.get(key)
    return value is not None and value.lower() not in ("0", "false")


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """Return the API verb as RBAC rules name it; for other paths the method in lower case."""
    if not target.is_resource:
        return method.lower()
    if method == "GET":
        # Only a collection takes `?watch`; one object is watched through the `/watch/` path alone.
        if target.is_watch or (not target.name and is_true(query, "watch")):
            return "watch"
        return "get" if target.name else "list"
    if method == "HEAD" and target.subresource == "proxy":
        return "get"
    verb = _WRITE_VERBS.get(method, NO_VERB)
    if verb == "delete" and not target.name:
        return "deletecollection"
    return verb


def is_stream(verb: str, subresource: str) -> bool:
    """Return whether a request is a stream, which lasts as long as its client wants."""
    return verb == "watch" or subresource in STREAMS

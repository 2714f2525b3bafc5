"""Matching of requests to flow schemas. Pure functions.

Source: apiserver `util/flowcontrol/rule.go`.
"""

from __future__ import annotations

from moorage.api.flow_control import (
    NonResourcePolicyRule,
    PolicyRulesWithSubjects,
    ResourcePolicyRule,
    Subject,
)
from moorage.apiserver.endpoints.routing import Target
from moorage.apiserver.flow_control.configuration import SchemaConfiguration
from moorage.apiserver.registry.request import User

_ANY = "*"
_ACCOUNT = "system:serviceaccount:"


def matches(schema: SchemaConfiguration, user: User, verb: str, target: Target) -> bool:
    """Return whether a request is one of a schema's."""
    return any(_matches_rules(rules, user, verb, target) for rules in schema.rules)


def distinguisher_of(schema: SchemaConfiguration, user: User, target: Target) -> str:
    """Return the distinguisher of a request's flow among those of its schema."""
    match schema.distinguisher:
        case "ByUser":
            return user.name
        case "ByNamespace":
            return target.namespace
        case _:
            return ""


def _matches_rules(rules: PolicyRulesWithSubjects, user: User, verb: str, target: Target) -> bool:
    if not any(_is_subject(subject, user) for subject in rules.subjects):
        return False
    if target.is_resource:
        return any(_covers(rule, verb, target) for rule in rules.resource_rules)
    return any(_covers_path(rule, verb, target.path) for rule in rules.non_resource_rules)


def _is_subject(subject: Subject, user: User) -> bool:
    match subject.kind:
        case "User":
            return subject.user is not None and subject.user.name in (_ANY, user.name)
        case "Group":
            group = subject.group
            return group is not None and (group.name == _ANY or group.name in user.groups)
        case "ServiceAccount":
            account = subject.service_account
            if account is None or not user.name.startswith(_ACCOUNT):
                return False
            namespace, _, name = user.name.removeprefix(_ACCOUNT).partition(":")
            return namespace == account.namespace and account.name in (_ANY, name)
        case _:
            return False


def _covers(rule: ResourcePolicyRule, verb: str, target: Target) -> bool:
    resource = target.resource
    if target.subresource:
        resource = f"{resource}/{target.subresource}"
    if not (
        _has(rule.verbs, verb) and _has(rule.resources, resource)
        and _has(rule.api_groups, target.group)
    ):  # fmt: skip
        return False
    return _has(rule.namespaces, target.namespace) if target.namespace else rule.cluster_scope


def _covers_path(rule: NonResourcePolicyRule, verb: str, path: str) -> bool:
    return _has(rule.verbs, verb) and any(_is_below(path, url) for url in rule.non_resource_urls)


def _is_below(path: str, url: str) -> bool:
    """Return whether a URL of a rule covers a path: its own, those below it, or all."""
    return url in (_ANY, path) or path.startswith(f"{url.removesuffix(_ANY).removesuffix('/')}/")


def _has(values: tuple[str, ...], value: str) -> bool:
    """Return whether a list of a rule has a value. `*` stands for all where it is alone."""
    return values == (_ANY,) or value in values

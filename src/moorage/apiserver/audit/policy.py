"""Audit policy: which requests are recorded, at which level, at which stages.

The first rule that matches a request decides; without one it is not recorded.
Source: audit.k8s.io/v1 `Policy`; apiserver `audit/policy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import msgspec

from moorage.api import names
from moorage.apiserver.registry.option_files import (
    DocumentError,
    OptionFileError,
    parse_option_document,
    read_option_file,
)
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User

API_VERSION = "audit.k8s.io/v1"
RECEIVED, STARTED = "RequestReceived", "ResponseStarted"
COMPLETE, PANIC = "ResponseComplete", "Panic"
STAGES = (RECEIVED, STARTED, COMPLETE, PANIC)
_ALL = "*"


class PolicyError(ValueError):
    """A policy file cannot be used."""


class Level(IntEnum):
    """How much of a request is recorded, by upstream's names."""

    none = 0
    metadata = 1
    request = 2
    request_response = 3


LEVELS = {
    "None": Level.none,
    "Metadata": Level.metadata,
    "Request": Level.request,
    "RequestResponse": Level.request_response,
}
LEVEL_NAMES = {level: name for name, level in LEVELS.items()}


class GroupResources(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Resources of a group, and names of their objects."""

    group: str = ""
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A rule. What is empty matches every request."""

    level: str = ""
    users: tuple[str, ...] | None = None
    user_groups: tuple[str, ...] | None = None
    verbs: tuple[str, ...] | None = None
    resources: tuple[GroupResources, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    non_resource_urls: tuple[str, ...] | None = msgspec.field(default=None, name="nonResourceURLs")
    omit_stages: tuple[str, ...] | None = None
    omit_managed_fields: bool | None = None


class _Document(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    api_version: str = ""
    kind: str = ""
    metadata: dict[str, object] | None = None
    rules: tuple[Rule, ...] | None = None
    omit_stages: tuple[str, ...] | None = None
    omit_managed_fields: bool = False


class Recorded(msgspec.Struct, frozen=True):
    """What is recorded of a request."""

    level: Level
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


_NOTHING = Recorded(Level.none)


class AuditPolicy:
    """The rules of a policy, which was checked."""

    def __init__(self, rules: tuple[tuple[Rule, Recorded], ...]) -> None:
        self._rules = rules

    def recorded(self, user: User | None, action: Action) -> Recorded:
        """Return the recorded parts of a request. `user` is None if authentication failed."""
        for rule, recorded in self._rules:
            if _matches(rule, user, action):
                return recorded
        return _NOTHING


def load_policy(path: Path) -> AuditPolicy:
    """Return the policy in a YAML or JSON file. Raises PolicyError."""
    try:
        text = read_option_file(path)
    except OptionFileError as error:
        raise PolicyError(f"audit policy {error}") from error
    try:
        return parse_policy(text)
    except PolicyError as error:
        raise PolicyError(f"audit policy {path}: {error}") from error


def parse_policy(text: bytes) -> AuditPolicy:
    """Return the policy in a YAML or JSON document. Raises PolicyError, which names every fault."""
    try:
        document = msgspec.convert(parse_option_document(text), _Document)
    except (DocumentError, msgspec.ValidationError) as error:
        raise PolicyError(f"is not a policy: {error}") from error
    if (document.api_version, document.kind) != (API_VERSION, "Policy"):
        raise PolicyError(
            f"is of {document.api_version or 'no apiVersion'}, kind {document.kind or 'missing'}; "
            f"use {API_VERSION}, kind Policy"
        )
    rules = document.rules or ()
    faults = [
        *_stage_faults("omitStages", document.omit_stages),
        *(fault for index, rule in enumerate(rules) for fault in _faults(f"rules[{index}]", rule)),
    ]
    if faults:
        raise PolicyError("; ".join(faults))
    if not rules:
        raise PolicyError("loaded illegal policy with 0 rules")
    return AuditPolicy(tuple((rule, _recorded(document, rule)) for rule in rules))


def _recorded(document: _Document, rule: Rule) -> Recorded:
    omits_fields = rule.omit_managed_fields
    return Recorded(
        LEVELS[rule.level],
        frozenset((*(document.omit_stages or ()), *(rule.omit_stages or ()))),
        document.omit_managed_fields if omits_fields is None else omits_fields,
    )


def _faults(path: str, rule: Rule) -> Iterator[str]:
    """Yield the errors of a rule. Source: apis/audit `validation`."""
    if not rule.level:
        yield f"{path}.level: Required value"
    elif rule.level not in LEVELS:
        supported = ", ".join(f'"{level}"' for level in LEVELS)
        yield f'{path}.level: Unsupported value: "{rule.level}": supported values: {supported}'
    for index, url in enumerate(rule.non_resource_urls or ()):
        place = f'{path}.nonResourceURLs[{index}]: Invalid value: "{url}"'
        if url == _ALL:
            continue
        if not url.startswith("/"):
            yield f"{place}: non-resource URL rules must begin with a '/' character"
        if _ALL in url[:-1]:
            yield f"{place}: non-resource URL wildcards '*' must be the final character of the rule"
    for entry in rule.resources or ():
        if entry.group not in ("", _ALL) and (errors := names.dns_subdomain_errors(entry.group)):
            yield f'{path}.resources.group: Invalid value: "{entry.group}": {",".join(errors)}'
        if entry.resource_names and not entry.resources:
            yield (
                f"{path}.resources.resourceNames: Invalid value: {_shown(entry.resource_names)}: "
                "using resourceNames requires at least one resource"
            )
    yield from _stage_faults(f"{path}.omitStages", rule.omit_stages)
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        yield (
            f"{path}.nonResourceURLs: Invalid value: {_shown(rule.non_resource_urls)}: rules "
            "cannot apply to both regular resources and non-resource URLs"
        )


def _stage_faults(path: str, stages: tuple[str, ...] | None) -> Iterator[str]:
    for index, stage in enumerate(stages or ()):
        if stage not in STAGES:
            allowed = ",".join(STAGES)
            yield f'{path}[{index}]: Invalid value: "{stage}": allowed stages are {allowed}'


def _shown(texts: tuple[str, ...]) -> str:
    return msgspec.json.encode(texts).decode()


def _matches(rule: Rule, user: User | None, action: Action) -> bool:
    if rule.users and (user is None or user.name not in rule.users):
        return False
    if rule.user_groups and (user is None or not any(g in rule.user_groups for g in user.groups)):
        return False
    if rule.verbs and action.verb not in rule.verbs:
        return False
    if rule.namespaces or rule.resources:
        return action.is_resource and _matches_resource(rule, action)
    if rule.non_resource_urls:
        return not action.is_resource and any(
            _matches_path(action.path, pattern) for pattern in rule.non_resource_urls
        )
    return True


def _matches_path(path: str, pattern: str) -> bool:
    if pattern in (_ALL, path):
        return True
    return pattern.endswith(_ALL) and path.startswith(pattern.rstrip(_ALL))


def _matches_resource(rule: Rule, action: Action) -> bool:
    if rule.namespaces and action.namespace not in rule.namespaces:
        return False
    return not rule.resources or any(_matches_entry(entry, action) for entry in rule.resources)


def _matches_entry(entry: GroupResources, action: Action) -> bool:
    if entry.group not in (action.group, _ALL):
        return False
    if not entry.resources:
        return True
    if entry.resource_names and action.name not in entry.resource_names:
        return False
    patterns = {action.full_resource, _ALL, f"{action.resource}/*"}
    if action.subresource:
        patterns.add(f"*/{action.subresource}")
    return not patterns.isdisjoint(entry.resources)

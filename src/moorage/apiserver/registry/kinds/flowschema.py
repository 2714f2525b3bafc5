"""FlowSchemas. Source: flowcontrol validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import update
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.flow_control import (
    flow_status_errors,
    validate_flow_status,
)

_TYPES = "io.k8s.api.flowcontrol.v1"
_PRECEDENCE = 1000
_HIGHEST_PRECEDENCE = 10000
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
"""Kinds of subjects, with the field that holds one."""

_ANY = "*"


def _mandatory(groups: tuple[str, ...], **fields: Any) -> Obj:
    """Return the specification of a schema that matches every request of groups."""
    rule = {
        "subjects": [{"kind": "Group", "group": {"name": group}} for group in groups],
        "resourceRules": [
            {
                "verbs": [_ANY],
                "apiGroups": [_ANY],
                "resources": [_ANY],
                "namespaces": [_ANY],
                "clusterScope": True,
            }
        ],
        "nonResourceRules": [{"verbs": [_ANY], "nonResourceURLs": [_ANY]}],
    }
    return {**fields, "rules": [rule]}


MANDATORY_SPECS = {
    "exempt": _mandatory(
        ("system:masters",),
        priorityLevelConfiguration={"name": "exempt"},
        matchingPrecedence=1,
    ),
    "catch-all": _mandatory(
        ("system:unauthenticated", "system:authenticated"),
        priorityLevelConfiguration={"name": "catch-all"},
        matchingPrecedence=10000,
        distinguisherMethod={"type": "ByUser"},
    ),
}
"""Schemas whose specification is fixed."""


def default_flow_schema(flow_schema: Obj) -> None:
    """Set the API defaults of a FlowSchema."""
    spec = flow_schema.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = _PRECEDENCE


def validate_flow_schema(flow_schema: Obj) -> list[FieldError]:
    """Return the errors of a FlowSchema."""
    name, spec = flow_schema["metadata"].get("name", ""), flow_schema.get("spec", {})
    errors = [*_spec_errors(name, spec)]
    if name in MANDATORY_SPECS and spec != MANDATORY_SPECS[name]:
        errors.append(
            FieldError.invalid("spec", spec, f"spec of '{name}' must equal the fixed value")
        )
    return errors + flow_status_errors(flow_schema)


def _spec_errors(name: str, spec: Obj) -> Iterator[FieldError]:
    yield from _precedence_errors(name, spec.get("matchingPrecedence", 0))
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type", "") not in _DISTINGUISHERS:
        yield FieldError.not_supported(
            "spec.distinguisherMethod.type", {"Type": method.get("type", "")}, _DISTINGUISHERS
        )
    level = spec.get("priorityLevelConfiguration", {}).get("name", "")
    path = "spec.priorityLevelConfiguration.name"
    if not level:
        yield FieldError.required(path, "must reference a priority level")
    for detail in names.dns_subdomain_errors(level) if level else ():
        yield FieldError.invalid(path, level, detail)
    for index, rule in enumerate(spec.get("rules", ())):
        yield from _rule_errors(rule, f"spec.rules[{index}]")


def _precedence_errors(name: str, precedence: int) -> Iterator[FieldError]:
    path = "spec.matchingPrecedence"
    if precedence <= 0:
        yield FieldError.invalid(path, precedence, "must be a positive value")
    if precedence > _HIGHEST_PRECEDENCE:
        yield FieldError.invalid(
            path, precedence, f"must not be greater than {_HIGHEST_PRECEDENCE}"
        )
    if precedence == 1 and name != "exempt":
        yield FieldError.invalid(
            path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"
        )


def _rule_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    if not rule.get("subjects"):
        yield FieldError.required(f"{path}.subjects", "subjects must contain at least one value")
    for index, subject in enumerate(rule.get("subjects", ())):
        yield from _subject_errors(subject, f"{path}.subjects[{index}]")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield FieldError.required(
            path, "at least one of resourceRules and nonResourceRules has to be non-empty"
        )
    for index, inner in enumerate(rule.get("resourceRules", ())):
        yield from _resource_rule_errors(inner, f"{path}.resourceRules[{index}]")
    for index, inner in enumerate(rule.get("nonResourceRules", ())):
        yield from _url_rule_errors(inner, f"{path}.nonResourceRules[{index}]")


def _subject_errors(subject: Obj, path: str) -> Iterator[FieldError]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield FieldError.not_supported(f"{path}.kind", kind, tuple(_SUBJECTS))
        return
    field = _SUBJECTS[kind]
    at = f"{path}.{field}"
    if field not in subject:
        yield FieldError.required(at, f"{field} is required when subject kind is '{kind}'")
    else:
        yield from _named_errors(subject[field], at, kind)
    for other_kind in ("ServiceAccount", "User", "Group"):
        other = _SUBJECTS[other_kind]
        if other != field and other in subject:
            yield FieldError.forbidden(
                f"{path}.{other}", f"{other} is forbidden when subject kind is not '{other_kind}'"
            )


def _named_errors(named: Obj, path: str, kind: str) -> Iterator[FieldError]:
    name, namespace = named.get("name", ""), named.get("namespace", "")
    if not name:
        yield FieldError.required(f"{path}.name")
    if kind != "ServiceAccount":
        return
    for detail in names.dns_subdomain_errors(name) if name not in ("", _ANY) else ():
        yield FieldError.invalid(f"{path}.name", name, detail)
    if not namespace:
        yield FieldError.required(f"{path}.namespace", "must specify namespace for service account")
    for detail in names.dns_label_errors(namespace) if namespace else ():
        yield FieldError.invalid(f"{path}.namespace", namespace, detail)


def _verb_errors(verbs: list[str], path: str) -> Iterator[FieldError]:
    if not verbs:
        yield FieldError.required(path, "verbs must contain at least one value")
    elif _ANY in verbs:
        yield from _alone_errors(verbs, path, "verbs")
    elif not set(verbs) <= set(_VERBS):
        yield FieldError.not_supported(path, verbs, _VERBS)


def _alone_errors(values: list[str], path: str, what: str) -> Iterator[FieldError]:
    if len(values) > 1 and _ANY in values:
        yield FieldError.invalid(path, values, f"if '*' is present, must not specify other {what}")


def _resource_rule_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    yield from _verb_errors(rule.get("verbs", []), f"{path}.verbs")
    for field, one, many in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        if not rule.get(field):
            yield FieldError.required(
                f"{path}.{field}", f"resource rules must supply at least one {one}"
            )
        yield from _alone_errors(rule.get(field, []), f"{path}.{field}", many)
    namespaces, at = rule.get("namespaces", []), f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        yield FieldError.required(
            at, "resource rules that are not cluster scoped must supply at least one namespace"
        )
    yield from _alone_errors(namespaces, at, "namespaces")
    for index, namespace in enumerate(namespaces if _ANY not in namespaces else ()):
        for detail in names.dns_label_errors(namespace):
            yield FieldError.invalid(
                f"{at}[{index}]",
                namespace,
                f"each member of this list must be '*' or a DNS-1123 label; {detail}",
            )


def _url_rule_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    yield from _verb_errors(rule.get("verbs", []), f"{path}.verbs")
    urls, at = rule.get("nonResourceURLs", []), f"{path}.nonResourceURLs"
    if not urls:
        yield FieldError.required(at, "nonResourceURLs must contain at least one value")
    yield from _alone_errors(urls, at, "non-resource URLs")
    for index, url in enumerate(urls if _ANY not in urls else ()):
        if problem := _url_problem(url):
            yield FieldError.invalid(f"{at}[{index}]", url, problem)


def _url_problem(url: str) -> str:
    """Return why a path cannot be matched; empty if it can."""
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    if url.count(_ANY) > 1 or (_ANY in url and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def _dangling(flow_schema: Obj) -> str:
    for condition in flow_schema.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Dangling":
            return str(condition.get("status", ""))
    return "?"


_SPEC_TYPE = f"{_TYPES}.FlowSchemaSpec"

FLOW_SCHEMA = Kind(
    name="FlowSchema",
    plural="flowschemas",
    served=(
        Served(group="flowcontrol.apiserver.k8s.io", version="v1", type=f"{_TYPES}.FlowSchema"),
    ),
    is_namespaced=False,
    strategy=Strategy(
        default=default_flow_schema,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_flow_schema,
        validate_update=update(validate_flow_schema),
        parts={"status": PartRules(keep_all_but_status, validate_flow_status)},
        spec_of=get_spec,
    ),
    printer=printer(
        NAME,
        column(
            "PriorityLevel",
            "spec.priorityLevelConfiguration.name",
            of=f"{_TYPES}.PriorityLevelConfigurationReference",
        ),
        column("MatchingPrecedence", "spec.matchingPrecedence", of=_SPEC_TYPE, absent=0),
        column(
            "DistinguisherMethod",
            "spec.distinguisherMethod",
            of=_SPEC_TYPE,
            absent=NONE,
            show=lambda method: method.get("type", ""),
        ),
        AGE,
        column(
            "MissingPL",
            _dangling,
            description="references a broken or non-existent PriorityLevelConfiguration",
        ),
    ),
    subresources=status_subresource(),
)

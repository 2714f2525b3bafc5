"""FlowSchemas. Source: flowcontrol validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    Check,
    follows,
    or_else,
    part,
    required,
    required_as,
    satisfies,
    unique,
    unless_empty,
    update,
    validator,
    when,
    without_path,
)
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

_TYPES = "io.k8s.api.flowcontrol.v1"
_GROUP = "flowcontrol.apiserver.k8s.io"
_PRECEDENCE = 1000
_HIGHEST_PRECEDENCE = 10000
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip
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


def _precedence_errors(flow_schema: Obj) -> Iterator[FieldError]:
    path, precedence = "spec.matchingPrecedence", flow_schema["spec"].get("matchingPrecedence", 0)
    if precedence <= 0:
        yield FieldError.invalid(path, precedence, "must be a positive value")
    if precedence > _HIGHEST_PRECEDENCE:
        detail = f"must not be greater than {_HIGHEST_PRECEDENCE}"
        yield FieldError.invalid(path, precedence, detail)
    if precedence == 1 and flow_schema["metadata"].get("name") != "exempt":
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield FieldError.invalid(path, precedence, detail)


def _distinguisher_errors(method: str, path: str) -> Iterator[FieldError]:
    if method not in _DISTINGUISHERS:
        yield FieldError.not_supported(path, {"Type": method}, _DISTINGUISHERS)


_named_errors = part(("name", required))
_account_errors = part(
    (
        "name",
        required,
        when(lambda name: name not in ("", _ANY), ("", follows(names.dns_subdomain_errors))),
    ),
    (
        "namespace",
        required_as("must specify namespace for service account"),
        unless_empty(follows(names.dns_label_errors)),
    ),
)
_SUBJECTS: dict[str, tuple[str, Check]] = {
    "ServiceAccount": ("serviceAccount", _account_errors),
    "User": ("user", _named_errors),
    "Group": ("group", _named_errors),
}
"""Kinds of subjects, with the field that holds one and its rules."""


def _subject_errors(subject: Obj, path: str) -> Iterator[FieldError]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield FieldError.not_supported(f"{path}.kind", kind, sorted(_SUBJECTS))
        return
    field, check = _SUBJECTS[kind]
    if field not in subject:
        detail = f"{field} is required when subject kind is '{kind}'"
        yield FieldError.required(f"{path}.{field}", detail)
    else:
        yield from check(subject[field], f"{path}.{field}")
    for other_kind, (other, _) in _SUBJECTS.items():
        if other != field and other in subject:
            detail = f"{other} is forbidden when subject kind is not '{other_kind}'"
            yield FieldError.forbidden(f"{path}.{other}", detail)


def _rule_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield FieldError.required(path, detail)


def _verb_errors(verbs: list[str], path: str) -> Iterator[FieldError]:
    if not verbs:
        yield FieldError.required(path, "verbs must contain at least one value")
    elif _ANY in verbs:
        yield from _alone("verbs")(verbs, path)
    elif not set(verbs) <= set(_VERBS):
        yield FieldError.not_supported(path, verbs, _VERBS)


def _alone(shown: str) -> Check:
    """Return the check that `*` is the only value, where it is one."""
    return satisfies(
        lambda values: len(values) <= 1 or _ANY not in values,
        f"if '*' is present, must not specify other {shown}",
    )


def _namespace_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    namespaces, path = rule.get("namespaces", []), f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        yield FieldError.required(path, detail)
    yield from _alone("namespaces")(namespaces, path)
    for index, namespace in enumerate(namespaces if _ANY not in namespaces else ()):
        for problem in names.dns_label_errors(namespace):
            detail = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
            yield FieldError.invalid(f"{path}[{index}]", namespace, detail)


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


_URLS = when(
    lambda urls: _ANY not in urls,
    ("[*]", follows(lambda url: [problem] if (problem := _url_problem(url)) else [])),
)


def _changed_schema_errors(flow_schema: Obj) -> Iterator[FieldError]:
    name, spec = flow_schema["metadata"].get("name", ""), flow_schema["spec"]
    if name in MANDATORY_SPECS and spec != MANDATORY_SPECS[name]:
        yield FieldError.invalid("spec", spec, f"spec of '{name}' must equal the fixed value")


_CONDITIONS = ("status.conditions[*].type", unique, required)
_validate_status = update(validator(_CONDITIONS))

validate_flow_schema = validator(
    ("", without_path(_precedence_errors)),
    ("spec.distinguisherMethod?.type", or_else("", _distinguisher_errors)),
    (
        "spec.priorityLevelConfiguration.name",
        required_as("must reference a priority level"),
        unless_empty(follows(names.dns_subdomain_errors)),
    ),
    ("spec.rules[*].subjects", required_as("subjects must contain at least one value")),
    ("spec.rules[*].subjects[*]", _subject_errors),
    ("spec.rules[*]", _rule_errors),
    ("spec.rules[*].resourceRules[*].verbs", or_else([], _verb_errors)),
    (
        "spec.rules[*].resourceRules[*].apiGroups",
        required_as("resource rules must supply at least one api group"),
        _alone("api groups"),
    ),
    (
        "spec.rules[*].resourceRules[*].resources",
        required_as("resource rules must supply at least one resource"),
        _alone("resources"),
    ),
    ("spec.rules[*].resourceRules[*]", _namespace_errors),
    ("spec.rules[*].nonResourceRules[*].verbs", or_else([], _verb_errors)),
    (
        "spec.rules[*].nonResourceRules[*].nonResourceURLs",
        required_as("nonResourceURLs must contain at least one value"),
        _alone("non-resource URLs"),
        _URLS,
    ),
    ("", without_path(_changed_schema_errors)),
    _CONDITIONS,
)


def _dangling(flow_schema: Obj) -> str:
    for condition in flow_schema.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Dangling":
            return str(condition.get("status", ""))
    return "?"


_SPEC_TYPE = f"{_TYPES}.FlowSchemaSpec"

FLOW_SCHEMA = Kind(
    name="FlowSchema",
    plural="flowschemas",
    served=(Served(_GROUP, "v1", f"{_TYPES}.FlowSchema"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_flow_schema,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_flow_schema,
        validate_update=update(validate_flow_schema),
        parts={"status": PartRules(keep_all_but_status, _validate_status)},
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

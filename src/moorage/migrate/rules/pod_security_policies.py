"""PodSecurityPolicies: their `runtimeClass` rules as RuntimePolicies.

A PodSecurityPolicy is in force where a binding lets someone use it, so the bindings among the
documents say for which namespaces its rules become policies. Everything but `runtimeClass` is
Pod Security admission's. Source: policy/v1beta1 `RuntimeClassStrategyOptions`: `*` allows every
class, an empty list none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.runtime_group import GROUP
from moorage.migrate.rules.findings import Outcome, Severity, note, refused
from moorage.migrate.rules.handler_files import table, text, texts
from moorage.migrate.rules.policies import PolicyRules, Scope, policy_object
from moorage.runtimeclass.handler import LEGACY

KIND = "PodSecurityPolicy"
_GROUPS = frozenset({"policy", "extensions", "*"})
_RBAC = "rbac.authorization.k8s.io/"
LABEL = f"{GROUP}/policy"
"""Label of namespaces for a policy whose bindings are unknown; its value is the policy's name."""


class Bindings(msgspec.Struct, frozen=True):
    """Where each PodSecurityPolicy is in force: its namespaces, and "" for all of them."""

    namespaces: Mapping[str, frozenset[str]] = {}

    def policies_of(self, namespace: str) -> list[str]:
        """Return the policies in force in a namespace, or anywhere for "", sorted."""
        return sorted(
            name
            for name, places in self.namespaces.items()
            if not namespace or places & {namespace, ""}
        )


def is_policy(document: dict[str, Any]) -> bool:
    """Return whether a document is a PodSecurityPolicy."""
    return document.get("kind") == KIND and text(document.get("apiVersion")).partition("/")[0] in (
        "policy",
        "extensions",
    )


def bindings_in(documents: Sequence[dict[str, Any]]) -> Bindings:
    """Return the bindings of PodSecurityPolicies among documents: roles and what binds them."""
    usable: dict[tuple[str, str, str], set[str]] = {}
    for document in _rbac(documents, "Role", "ClusterRole"):
        kind, namespace, name = _place(document)
        names = usable.setdefault((kind, namespace, name), set())
        for rule in document.get("rules") or () if isinstance(document.get("rules"), list) else ():
            names.update(_policies_of_rule(table(rule)))
    namespaces: dict[str, set[str]] = {}
    for document in _rbac(documents, "RoleBinding", "ClusterRoleBinding"):
        kind, namespace, _ = _place(document)
        role = table(document.get("roleRef"))
        role_kind, role_name = text(role.get("kind")), text(role.get("name"))
        home = namespace if role_kind == "Role" else ""
        for policy in usable.get((role_kind, home, role_name), ()):
            place = "" if kind == "ClusterRoleBinding" else namespace
            namespaces.setdefault(policy, set()).add(place)
    return Bindings({name: frozenset(places) for name, places in namespaces.items()})


def migrate_policy(document: dict[str, Any], bindings: Bindings) -> Outcome:
    """Return the policies for the class rules of a PodSecurityPolicy, none if it has none."""
    name = text(table(document.get("metadata")).get("name"))
    options = table(table(document.get("spec")).get("runtimeClass"))
    if not options or not name:
        return Outcome()
    rules = _rules(options)
    if rules is None:
        return Outcome()
    origin = f"{document['apiVersion']} {KIND}/{name}"
    places = bindings.namespaces.get(name)
    if places is None:
        selector = {"matchLabels": {LABEL: name}}
        return Outcome(
            objects=[policy_object(name, Scope(selector=selector), rules, origin)],
            notes=[
                note(
                    "no binding among the files says where it is used: label the namespaces "
                    f"{LABEL}={name}"
                )
            ],
        )
    objects: list[dict[str, Any]] = []
    notes: list[tuple[Severity, str]] = []
    for place in [""] if "" in places else sorted(places):
        others = [other for other in bindings.policies_of(place) if other != name]
        if others:
            where = f"namespace {place}" if place else "all namespaces"
            notes.append(
                refused(
                    f"in {where} {', '.join(others)} can be used too, and a pod had to satisfy one "
                    "of them; write a policy that says what all of them allow"
                )
            )
            continue
        objects.append(policy_object(name, Scope(namespace=place), rules, origin))
    return Outcome(objects=objects, notes=notes)


def _rules(options: dict[str, Any]) -> PolicyRules | None:
    allowed = texts(options.get("allowedRuntimeClassNames"))
    default = text(options.get("defaultRuntimeClassName"))
    if "*" in allowed:
        rules = PolicyRules(default=default)
    else:
        # A pod could leave its class out, unless it then got the default.
        without = () if default else (LEGACY,)
        rules = PolicyRules(default=default, allowed=tuple(dict.fromkeys((*allowed, *without))))
    return rules if rules != PolicyRules() else None


def _rbac(documents: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [
        document
        for document in documents
        if document.get("kind") in kinds and text(document.get("apiVersion")).startswith(_RBAC)
    ]


def _place(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = table(document.get("metadata"))
    kind = text(document.get("kind"))
    namespace = text(metadata.get("namespace")) or "default"
    is_cluster = kind.startswith("Cluster")
    return kind, "" if is_cluster else namespace, text(metadata.get("name"))


def _policies_of_rule(rule: dict[str, Any]) -> tuple[str, ...]:
    groups, resources = texts(rule.get("apiGroups")), texts(rule.get("resources"))
    verbs = texts(rule.get("verbs"))
    is_use = (
        not _GROUPS.isdisjoint(groups)
        and not {"podsecuritypolicies", "*"}.isdisjoint(resources)
        and not {"use", "*"}.isdisjoint(verbs)
    )
    return texts(rule.get("resourceNames")) if is_use else ()

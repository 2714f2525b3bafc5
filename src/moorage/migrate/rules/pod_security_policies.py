"""PodSecurityPolicies: their `runtimeClass` rules as RuntimePolicies.

A PodSecurityPolicy is in force where a binding lets someone use it, so the bindings among the
documents say for which namespaces its rules become policies. Everything but `runtimeClass` is
Pod Security admission's. Source: policy/v1beta1 `RuntimeClassStrategyOptions`: `*` allows every
class, an empty list none.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.runtime_group import GROUP
from moorage.migrate.rules.changes import (
    Insert,
    Operation,
    Outcome,
    Remove,
    Severity,
    at,
    below,
    note,
    refused,
    template_path,
)
from moorage.migrate.rules.handler_files import table, text, texts
from moorage.migrate.rules.policies import PolicyRules, Scope, policy_object
from moorage.runtimeclass.validation import LEGACY

# Pod annotations of engines from before RuntimeClass, as `runtimeClassName`.
#
# containerd, CRI-O, frakti and dockershim each chose a pod's runtime by an annotation. Sources:
# containerd's CRI plugin ("untrusted workload"), CRI-O 1.10 `default_workload_trust`, frakti's
# "runtime" annotations, dockershim's "Hyper-V isolation".


class Meaning(enum.StrEnum):
    """What an annotation asked for; a class is chosen for each."""

    UNTRUSTED = "untrusted"
    OS_CONTAINER = "os-container"
    UNIKERNEL = "unikernel"
    HYPERV = "hyperv"


class _Annotation(msgspec.Struct, frozen=True):
    """Values that ask for something, and those that ask for the engine's default runtime."""

    asks: Mapping[str, Meaning]
    defaults: tuple[str, ...]
    refuses_host_namespaces: bool = False


ANNOTATIONS: dict[str, _Annotation] = {
    "io.kubernetes.cri.untrusted-workload": _Annotation(
        {"true": Meaning.UNTRUSTED}, ("false",), refuses_host_namespaces=True
    ),
    "io.kubernetes.cri-o.TrustedSandbox": _Annotation({"false": Meaning.UNTRUSTED}, ("true",)),
    "runtime.frakti.alpha.kubernetes.io/OSContainer": _Annotation(
        {"true": Meaning.OS_CONTAINER}, ("false",)
    ),
    "runtime.frakti.alpha.kubernetes.io/Unikernel": _Annotation(
        {"true": Meaning.UNIKERNEL}, ("false",)
    ),
    "experimental.windows.kubernetes.io/isolation-type": _Annotation(
        {"hyperv": Meaning.HYPERV}, ("process",)
    ),
}
"""Annotations that a class has replaced."""

DEFAULT_CLASSES: dict[Meaning, tuple[str, str]] = {
    Meaning.UNTRUSTED: ("untrusted", "untrusted"),
    Meaning.OS_CONTAINER: ("native", "runc"),
    Meaning.UNIKERNEL: ("unikernel", "unikernel"),
    Meaning.HYPERV: ("hyperv", "runhcs-wcow-hypervisor"),
}
"""Name and handler of the class of each meaning. containerd's table is `runtimes.untrusted`."""

_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


class TemplateOutcome(msgspec.Struct, frozen=True):
    """The class that a pod template's annotations mean; `meaning` is None without one."""

    outcome: Outcome
    meaning: Meaning | None = None


def migrate_annotations(
    document: dict[str, Any], class_names: Mapping[Meaning, str]
) -> TemplateOutcome:
    """Return the operations that replace the annotations of an object's pod template by a class.

    `class_names` are the classes for the meanings. An object whose annotations contradict each
    other, or its class, is refused.
    """
    path = template_path(document)
    if path is None:
        return TemplateOutcome(Outcome())
    template = at(document, path)
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return TemplateOutcome(Outcome())
    own = {key: value for key, value in annotations.items() if key in ANNOTATIONS}
    if not own:
        return TemplateOutcome(Outcome())
    notes: list[tuple[Severity, str]] = []
    removed: list[str] = []
    meanings: dict[Meaning, str] = {}
    for key, value in own.items():
        annotation = ANNOTATIONS[key]
        if not isinstance(value, str):
            notes.append(refused(f"annotation {key} is not a text; quote its value"))
        elif value in annotation.asks:
            meanings[annotation.asks[value]] = key
            removed.append(key)
        elif value in annotation.defaults:
            removed.append(key)
        else:
            notes.append(
                refused(f"annotation {key} has the value {value[:80]!r}, which no engine knew")
            )
    if len(meanings) > 1:
        keys = " and ".join(meanings.values())
        return TemplateOutcome(
            Outcome(notes=[*notes, refused(f"annotations {keys} contradict each other; keep one")])
        )
    spec = template["spec"]
    operations: list[Operation] = []
    meaning = next(iter(meanings), None)
    if meaning is not None:
        class_name = class_names[meaning]
        present = spec.get("runtimeClassName")
        if present and present != class_name:
            return TemplateOutcome(
                Outcome(
                    notes=[
                        *notes,
                        refused(
                            f"annotation {meanings[meaning]} means class {class_name!r}, but "
                            f"runtimeClassName is {str(present)[:80]!r}; keep one"
                        ),
                    ]
                )
            )
        if not present:
            if "runtimeClassName" in spec:
                operations.append(Remove(("spec",), ("runtimeClassName",)))
            operations.append(Insert(("spec",), "runtimeClassName", class_name))
        host = [field for field in _HOST_NAMESPACES if spec.get(field) is True]
        if host and ANNOTATIONS[meanings[meaning]].refuses_host_namespaces:
            notes.append(
                note(
                    f"it has {', '.join(host)}, which containerd refused with its annotation and "
                    "most sandboxes cannot give"
                )
            )
    operations += _removals(removed, annotations, metadata)
    return TemplateOutcome(Outcome(below(path, operations), notes=notes), meaning)


def _removals(
    removed: list[str], annotations: dict[str, Any], metadata: dict[str, Any]
) -> list[Operation]:
    if not removed:
        return []
    if len(removed) < len(annotations):
        return [Remove(("metadata", "annotations"), tuple(removed))]
    if len(metadata) > 1:
        return [Remove(("metadata",), ("annotations",))]
    return [Remove((), ("metadata",))]


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

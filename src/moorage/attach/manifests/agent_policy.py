"""Admission policies of the runtime agent: each agent changes what concerns its own node alone.

A ClusterRole cannot say "the own node", so the rights of the agents' account are those over all
nodes; these policies narrow them to the node of the pod that a token was issued to, as
NodeRestriction does for kubelets. Source: KEP-3488, KEP-4193 (Kubernetes 1.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.api.meta import Raw
from moorage.api.names import SUBDOMAIN_MAX
from moorage.api.runtime_group import GROUP, PROBE_LABEL
from moorage.attach.manifests.identity import RUNTIME_AGENT, Obj, metadata, part_name
from moorage.attach.values import Values
from moorage.runtimes.custom_resources import definitions
from moorage.runtimes.probing.pod_carrier import NAMESPACE as PROBE_NAMESPACE
from moorage.runtimes.probing.pod_manifest import CUT, NODE_MAX, probe_class_name, probe_pod_name

_INSTALLATIONS = "runtimeinstallations"
_REGISTRATION = "admissionregistration.k8s.io"
_NODE_KEY = "authentication.kubernetes.io/node-name"
_NODE = (
    f"has(request.userInfo.extra) && '{_NODE_KEY}' in request.userInfo.extra"
    f" ? request.userInfo.extra['{_NODE_KEY}'][0] : ''"
)
_OWN_NODE = "variables.node != ''"
_OWN_LABEL = f"key.startsWith('{GROUP}/') || key.split('/')[0].endsWith('.{GROUP}')"
_MARK = "xxxxxxxx"
_POD_PREFIX = probe_pod_name("", _MARK).partition(_MARK)[0]
_POD_NODE_AT = len(probe_pod_name("", _MARK))
_OWN_POD = (
    f"{{name}}.startsWith('{_POD_PREFIX}') && {{name}}.size() > {_POD_NODE_AT}"
    f" && {{name}}.substring({_POD_NODE_AT}) == variables.node"
)
_CLASS_PREFIX = probe_class_name("", "").removesuffix(".")


class _Check:
    """An expression that must hold, and what the refusal says."""

    def __init__(self, expression: str, message: str) -> None:
        self.expression = expression
        self.message = message


def objects(values: Values) -> list[Obj]:
    """Return the policies, and their bindings."""
    account = f"system:serviceaccount:{values.namespace}:{part_name(RUNTIME_AGENT)}"
    made: list[Obj] = []
    for suffix, rules, checks in _POLICIES:
        made += _policy(part_name(RUNTIME_AGENT) + suffix, account, rules, checks)
    return made


def _unchanged(path: str) -> str:
    """Return the expression that an optional field is as before."""
    return f"has(object.{path}) == has(oldObject.{path})" + (
        f" && (!has(object.{path}) || object.{path} == oldObject.{path})"
    )


def _labels_of(variable: str) -> str:
    return f"has({variable}.metadata.labels) ? {variable}.metadata.labels : {{}}"


_NODE_CHECKS = (
    _Check(
        "request.operation == 'UPDATE' && !has(request.subResource)"
        " && object.metadata.name == variables.node",
        "a runtime agent changes its own node only",
    ),
    _Check(
        f"variables.labels.all(key, {_OWN_LABEL} || (key in variables.oldLabels"
        " && variables.labels[key] == variables.oldLabels[key]))"
        f" && variables.oldLabels.all(key, {_OWN_LABEL} || key in variables.labels)",
        f"a runtime agent changes labels under {GROUP} only",
    ),
    _Check(
        " && ".join(
            f"({_unchanged(path)})"
            for path in (
                "spec", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences",
            )
        ),
        "a runtime agent changes nothing of a node but labels",
    ),
)  # fmt: skip

_PROFILE = "(request.operation == 'DELETE' ? oldObject : object)"
_PROFILE_CHECKS = (
    _Check(
        f"{_PROFILE}.spec.nodeName == variables.node"
        f" && {_PROFILE}.metadata.name == variables.node + '.' + {_PROFILE}.spec.handler",
        "a runtime agent writes RuntimeProfiles NODE.HANDLER of its own node only",
    ),
    _Check(
        "request.operation == 'DELETE' || !has(object.metadata.ownerReferences)"
        " || object.metadata.ownerReferences.all(owner, owner.kind == 'Node'"
        " && owner.name == variables.node)",
        "the owner of an agent's RuntimeProfile is its own node",
    ),
    _Check(
        # One would never go, and a detachment waits until the definition's objects are gone.
        "request.operation != 'CREATE' || !has(object.metadata.finalizers)",
        "a runtime agent's RuntimeProfile has no finalizers",
    ),
)


def _status_fields() -> list[str]:
    """Return the fields of a RuntimeInstallation's status beside the entries of nodes."""
    (definition,) = [
        one for one in definitions() if one["spec"]["names"]["plural"] == _INSTALLATIONS
    ]
    (version,) = definition["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    return sorted(properties.keys() - {"nodes"})


def _same_status_field(field: str) -> str:
    new, old = (
        f"has({one}.status) && has({one}.status.{field})" for one in ("object", "oldObject")
    )
    return (
        f"(({new}) == ({old}) && (!({new}) || object.status.{field} == oldObject.status.{field}))"
    )


_INSTALLATION_CHECKS = (
    _Check(
        "request.operation == 'UPDATE' && has(request.subResource)"
        " && request.subResource == 'status'"
        " && variables.others == variables.oldOthers",
        "a runtime agent writes its own entry in status.nodes only",
    ),
    _Check(
        " && ".join(_same_status_field(field) for field in _status_fields()),
        "a runtime agent writes nothing of a status but its own entry",
    ),
)

_POD_CHECKS = (
    _Check(
        f"request.namespace == '{PROBE_NAMESPACE}'",
        f"a runtime agent has pods in {PROBE_NAMESPACE} only",
    ),
    _Check(
        "request.operation == 'CREATE' ? object.spec.nodeName == variables.node && "
        + _OWN_POD.format(name="object.metadata.name")
        + " : oldObject.spec.nodeName == variables.node",
        "a runtime agent has probe pods of its own node only",
    ),
)
_CONNECT_CHECKS = (
    _Check(
        f"request.namespace == '{PROBE_NAMESPACE}' && " + _OWN_POD.format(name="request.name"),
        "a runtime agent connects to probe pods of its own node only",
    ),
)

_CLASS = "(request.operation == 'DELETE' ? oldObject : object)"
_CLASS_NAME = f"{_CLASS}.metadata.name"
_KEPT_NODE = (
    f"(variables.node.size() <= {NODE_MAX} ? variables.node"
    f" : '{CUT}' + variables.node.substring(variables.node.size() - {NODE_MAX - len(CUT)}))"
)
_FULL_NAME = f"('{_CLASS_PREFIX}' + {_CLASS}.handler + '.' + variables.node)"
OWN_CLASS_NAME = (
    f"({_CLASS_NAME} == {_FULL_NAME}"
    # One that is too long has handler or node cut. The node is all behind the first dot.
    f" || (({_FULL_NAME}.size() > {SUBDOMAIN_MAX} || variables.node.size() > {NODE_MAX})"
    f" && {_CLASS_NAME}.startsWith('{_CLASS_PREFIX}')"
    f" && {_CLASS_NAME}.substring({_CLASS_NAME}.indexOf('.') + 1) == {_KEPT_NODE}))"
)
"""CEL: whether a class has the name of `probe_class_name` for the variable `node`."""
_CLASS_CHECKS = (
    _Check(
        f"request.operation != 'UPDATE' && {OWN_CLASS_NAME}",
        "a runtime agent has classes of its own node's probes only",
    ),
    _Check(
        # Overhead, scheduling or an isolation label would be believed: classes are administrators'.
        "request.operation == 'DELETE' || (!has(object.overhead) && !has(object.scheduling)"
        " && !has(object.metadata.annotations) && has(object.metadata.labels)"
        f" && object.metadata.labels.all(key, key == '{PROBE_LABEL}')"
        f" && '{PROBE_LABEL}' in object.metadata.labels)",
        f"a class of a runtime agent's probes has the label {PROBE_LABEL} and nothing else",
    ),
)

_OWN_EVENT = (
    "({0}.involvedObject.kind == 'Node' ? {0}.involvedObject.name == variables.node"
    " : {0}.involvedObject.kind == 'RuntimeInstallation')"
)
_EVENT_CHECKS = (
    _Check(
        # A patch must not make one of another's events its own either.
        f"request.operation != 'DELETE' && {_OWN_EVENT.format('object')}"
        f" && (request.operation != 'UPDATE' || {_OWN_EVENT.format('oldObject')})",
        "a runtime agent records events about its own node and RuntimeInstallations only",
    ),
)

_Rule = tuple[str, tuple[str, ...], tuple[str, ...]]
"""API group, operations, resources."""
_WRITES = ("CREATE", "UPDATE", "DELETE")
_POLICIES: tuple[tuple[str, _Rule, Sequence[_Check]], ...] = (
    ("", ("", _WRITES, ("nodes", "nodes/status")), _NODE_CHECKS),
    ("-profiles", (GROUP, _WRITES, ("runtimeprofiles", "runtimeprofiles/status")), _PROFILE_CHECKS),
    (
        "-installations",
        (GROUP, _WRITES, (_INSTALLATIONS, f"{_INSTALLATIONS}/status")),
        _INSTALLATION_CHECKS,
    ),
    ("-pods", ("", _WRITES, ("pods", "pods/*")), _POD_CHECKS),
    ("-connections", ("", ("CONNECT",), ("pods/*", "nodes/*")), _CONNECT_CHECKS),
    ("-classes", ("node.k8s.io", _WRITES, ("runtimeclasses",)), _CLASS_CHECKS),
    ("-events", ("", _WRITES, ("events",)), _EVENT_CHECKS),
)

_OTHERS = (
    "has({0}.status) && has({0}.status.nodes)"
    " ? {0}.status.nodes.filter(entry, entry.name != variables.node) : []"
)
_VARIABLES: dict[str, dict[str, str]] = {
    "": {"labels": _labels_of("object"), "oldLabels": _labels_of("oldObject")},
    "-installations": {
        "others": _OTHERS.format("object"),
        "oldOthers": _OTHERS.format("oldObject"),
    },
}


def _policy(name: str, account: str, rule: _Rule, checks: Sequence[_Check]) -> list[Obj]:
    group, operations, resources = rule
    variables = {"node": _NODE, **_VARIABLES.get(name.removeprefix(part_name(RUNTIME_AGENT)), {})}
    validations: list[dict[str, Any]] = [
        {
            "expression": _OWN_NODE,
            "message": "the token of a runtime agent names no node: Kubernetes 1.30 or later, and "
            "a token that is bound to a pod",
            "reason": "Forbidden",
        }
    ]
    validations += [
        {"expression": check.expression, "message": check.message, "reason": "Forbidden"}
        for check in checks
    ]
    spec: Raw = {
        # An error in an expression must not open what it guards.
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": list(operations),
                    "resources": list(resources),
                }
            ]
        },
        "matchConditions": [
            {"name": "runtime-agent", "expression": f"request.userInfo.username == '{account}'"}
        ],
        "variables": [
            {"name": variable, "expression": expression}
            for variable, expression in variables.items()
        ],
        "validations": validations,
    }
    return [
        {
            "apiVersion": f"{_REGISTRATION}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata(name, RUNTIME_AGENT),
            "spec": spec,
        },
        {
            "apiVersion": f"{_REGISTRATION}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(name, RUNTIME_AGENT),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]

"""Webhook among the objects of an attachment: Deployment, Service, rights and configurations.

Its configurations are split by what a pod may lose while no webhook answers:

    rule       pods                                      failure policy
    named      that name a class or state needs          values.webhook.failurePolicy
    enforced   the others, in namespaces with the label  values.webhook.failurePolicy
               runtime.moorage.dev/enforce=true
    others     the others, in all other namespaces       Ignore
    held       updates that change what holds a pod      values.webhook.failurePolicy
    choices, templates, containers                       Ignore
    policies   RuntimePolicies that are written, and     values.webhook.failurePolicy
               RuntimeClassQuotas, which are refused

kube-system, our own namespace and the excluded ones are left alone; running pods need no webhook.
Match conditions need Kubernetes 1.30. Two replicas cannot count together, so that a class quota
would be none.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.api.meta import Raw
from moorage.api.runtime_group import (
    CHOICE_ANNOTATION,
    CHOICE_REASON_ANNOTATION,
    ENFORCE_LABEL,
    GROUP,
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    NEEDS_ANNOTATION,
    VERSION,
)
from moorage.attach.manifests.identity import (
    CONTROLLERS,
    FOLLOW,
    MOORAGE,
    WEBHOOK,
    Obj,
    account,
    cluster_role,
    metadata,
    part_name,
    rule,
    selector,
)
from moorage.attach.manifests.workloads import ONE_MORE_FIRST, container, deployment, http_probe
from moorage.attach.values import CERT_MANAGER, Values
from moorage.attach.webhook.server import MUTATE, VALIDATE

SECRET = "moorage-webhook-tls"
SERVICE = part_name(WEBHOOK)
PORT = 9443
_CERTIFICATES = "/certificates"
_TIMEOUT_S = 5
"""More than the 3 s for which the webhook waits for a namespace that is new."""
_DRAIN_S = 8
_STOP_S = 30
_ADMISSION = "admissionregistration.k8s.io/v1"
_CERT_MANAGER_API = "cert-manager.io/v1"
_IGNORE = "Ignore"
_NAME_KEY = "kubernetes.io/metadata.name"

RULES: tuple[Raw, ...] = (
    rule("", ["namespaces", "nodes"], FOLLOW),
    rule("node.k8s.io", ["runtimeclasses"], FOLLOW),
    rule(GROUP, ["clusterruntimepolicies", "runtimepolicies", "runtimeprofiles"], FOLLOW),
    rule("apiextensions.k8s.io", ["customresourcedefinitions"], FOLLOW),
    {"nonResourceURLs": ["/readyz"], "verbs": ["get"]},
)
"""All that the webhook may do: it reads what decides about classes, and nothing of pods."""


def objects(values: Values) -> list[Obj]:
    """Return the webhook's objects."""
    made = [
        account(values, WEBHOOK),
        *cluster_role(values, WEBHOOK, RULES),
        _service(values),
        _disruption_budget(values),
        _deployment(values),
        configuration(values, "MutatingWebhookConfiguration"),
        configuration(values, "ValidatingWebhookConfiguration"),
    ]
    if values.certificates == CERT_MANAGER:
        made += _cert_manager_objects(values)
    return made


def _deployment(values: Values) -> Obj:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(WEBHOOK)},
    }
    # A new replica answers before an old one stops.
    return deployment(
        values,
        WEBHOOK,
        _container(values),
        replicas=values.webhook.replicas,
        strategy=ONE_MORE_FIRST,
        terminationGracePeriodSeconds=_STOP_S,
        topologySpreadConstraints=[spread],
        volumes=[{"name": "certificates", "secret": {"secretName": SECRET}}],
    )


def _container(values: Values) -> Raw:
    arguments = [
        "webhook",
        "--in-cluster",
        f"--tls-cert-file={_CERTIFICATES}/tls.crt",
        f"--tls-private-key-file={_CERTIFICATES}/tls.key",
        f"--port={PORT}",
        "--place-by-handler",
        f"--shutdown-delay={_DRAIN_S}",
        f"--log-level={values.log_level}",
    ]
    return {
        **container(values, WEBHOOK, values.webhook.resources),
        "args": arguments,
        "ports": [{"name": "webhook", "containerPort": PORT}],
        "readinessProbe": http_probe("/readyz", PORT, scheme="HTTPS", period_s=2),
        "livenessProbe": http_probe("/livez", PORT, scheme="HTTPS", period_s=10),
        "volumeMounts": [{"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True}],
    }


def _service(values: Values) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(SERVICE, WEBHOOK, namespace=values.namespace),
        "spec": {
            "selector": selector(WEBHOOK),
            "ports": [{"name": "webhook", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def _disruption_budget(values: Values) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(SERVICE, WEBHOOK, namespace=values.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(WEBHOOK)}},
    }


def _value(obj: str, annotation: str) -> str:
    """Return the CEL expression of an annotation, `''` where it is absent."""
    annotations = f"{obj}.metadata.annotations"
    return (
        f"(has({annotations}) && '{annotation}' in {annotations} ? "
        f"{annotations}['{annotation}'] : '')"
    )


IS_NAMED = (
    "(has(object.spec.runtimeClassName) && object.spec.runtimeClassName != '') || "
    f"(has(object.metadata.annotations) && '{NEEDS_ANNOTATION}' in object.metadata.annotations)"
)
"""CEL: whether a pod names a class or states needs."""
_HAS_CHANGED_CHOICE = " || ".join(
    f"{_value('object', key)} != {_value('oldObject', key)}"
    for key in (CHOICE_ANNOTATION, CHOICE_REASON_ANNOTATION)
)


def _has_gate(obj: str) -> str:
    gates = f"{obj}.spec.schedulingGates"
    return f"(has({gates}) && {gates}.exists(gate, gate.name == '{HANDLER_GATE}'))"


_CHANGES_HOLD = (
    f"{_has_gate('oldObject')} && (!{_has_gate('object')} || "
    f"{_value('object', HELD_FOR_ANNOTATION)} != {_value('oldObject', HELD_FOR_ANNOTATION)})"
)
"""CEL: whether an update changes what holds a pod, or what it is held for."""


def _by_others(values: Values) -> str:
    """Return the CEL expression of a write that is not our controllers', which release pods."""
    account = f"system:serviceaccount:{values.namespace}:{part_name(CONTROLLERS)}"
    return f"request.userInfo.username != '{account}'"


def configuration(values: Values, kind: str) -> Obj:
    """Return a webhook configuration, with one webhook for each rule and failure policy."""
    is_mutating = kind.startswith("Mutating")
    policy = values.webhook.failure_policy
    pods = _rule("", ["pods"], ["CREATE"])
    named = [{"name": "names-a-class-or-needs", "expression": IS_NAMED}]
    other = [{"name": "names-no-class-and-no-needs", "expression": f"!({IS_NAMED})"}]
    enforced = {"key": ENFORCE_LABEL, "operator": "In", "values": ["true"]}
    free = {"key": ENFORCE_LABEL, "operator": "NotIn", "values": ["true"]}
    made = [
        _webhook(values, kind, "named", [pods], policy, conditions=named),
        _webhook(values, kind, "enforced", [pods], policy, conditions=other, scope=[enforced]),
        _webhook(values, kind, "others", [pods], _IGNORE, conditions=other, scope=[free]),
    ]
    if is_mutating:
        changed = [{"name": "changes-the-choice", "expression": _HAS_CHANGED_CHOICE}]
        hold = [
            {"name": "changes-what-holds-a-pod", "expression": _CHANGES_HOLD},
            {"name": "is-not-of-our-controllers", "expression": _by_others(values)},
        ]
        updates = _rule("", ["pods", "pods/status"], ["UPDATE"])
        made += [
            _webhook(values, kind, "held", [updates], policy, conditions=hold),
            _webhook(values, kind, "choices", [updates], _IGNORE, conditions=changed),
        ]
    else:
        templates = [
            _rule("", ["replicationcontrollers", "podtemplates"], ["CREATE", "UPDATE"]),
            _rule("apps", ["deployments", "replicasets", "statefulsets", "daemonsets"],
                  ["CREATE", "UPDATE"]),
            _rule("batch", ["jobs", "cronjobs"], ["CREATE", "UPDATE"]),
        ]  # fmt: skip
        added = _rule("", ["pods/ephemeralcontainers"], ["UPDATE"])
        policies = {
            **_rule(GROUP, ["runtimepolicies", "clusterruntimepolicies"], ["CREATE", "UPDATE"]),
            "apiVersions": [VERSION],
        }
        quotas = {**_rule(GROUP, ["runtimeclassquotas"], ["CREATE"]), "apiVersions": [VERSION]}
        made += [
            _webhook(values, kind, "templates", templates, _IGNORE),
            _webhook(values, kind, "containers", [added], _IGNORE),
            _webhook(values, kind, "policies", [policies, quotas], policy),
        ]
    described = metadata(MOORAGE, WEBHOOK)
    if values.certificates == CERT_MANAGER:
        source = f"{values.namespace}/{SERVICE}"
        described["annotations"] = {"cert-manager.io/inject-ca-from": source}
    return {"apiVersion": _ADMISSION, "kind": kind, "metadata": described, "webhooks": made}


def _webhook(
    values: Values,
    kind: str,
    name: str,
    rules: Sequence[Raw],
    policy: str,
    *,
    conditions: Sequence[Raw] = (),
    scope: Sequence[Raw] = (),
) -> Raw:
    is_mutating = kind.startswith("Mutating")
    excluded = {
        "key": _NAME_KEY,
        "operator": "NotIn",
        "values": list(dict.fromkeys(values.unguarded_namespaces)),
    }
    made: Raw = {
        "name": f"{name}.{GROUP}",
        "clientConfig": {
            "service": {
                "name": SERVICE,
                "namespace": values.namespace,
                "path": MUTATE if is_mutating else VALIDATE,
                "port": 443,
            }
        },
        "rules": list(rules),
        "namespaceSelector": {"matchExpressions": [excluded, *scope]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": policy,
        "timeoutSeconds": _TIMEOUT_S,
    }
    if conditions:
        made["matchConditions"] = list(conditions)
    if is_mutating:
        # Another webhook may give the pod its class after ours was called.
        made["reinvocationPolicy"] = "IfNeeded"
    return made


def _rule(group: str, resources: list[str], operations: list[str]) -> Raw:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": resources,
        "operations": operations,
        "scope": "*",
    }


def _cert_manager_objects(values: Values) -> list[Obj]:
    """Return the certificate that cert-manager issues in place of our controllers."""
    full = f"{SERVICE}.{values.namespace}.svc"
    made = metadata(SERVICE, WEBHOOK, namespace=values.namespace)
    return [
        {
            "apiVersion": _CERT_MANAGER_API,
            "kind": "Issuer",
            "metadata": made,
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": _CERT_MANAGER_API,
            "kind": "Certificate",
            "metadata": made,
            "spec": {
                "secretName": SECRET,
                "dnsNames": [full, f"{full}.cluster.local"],
                "issuerRef": {"kind": "Issuer", "name": SERVICE},
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            },
        },
    ]

"""The webhook's configurations: which pods a webhook that is away keeps out."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.runtime_group import ENFORCE_LABEL, HANDLER_GATE, HELD_FOR_ANNOTATION
from moorage.apiserver.cel.messages import PolicyInput
from moorage.apiserver.cel.policies import CompiledPolicy
from moorage.attach.manifests import objects
from moorage.attach.manifests.webhook import SECRET, configuration
from moorage.attach.values import Values, WebhookValues

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def webhooks(kind: str, values: Values | None = None) -> dict[str, Any]:
    made = configuration(values or Values(), kind)["webhooks"]
    return {one["name"].partition(".")[0]: one for one in made}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_only_what_the_policies_decide_about_may_be_kept_out(kind: str, policy: Any) -> None:
    made = webhooks(kind, Values(webhook=WebhookValues(failure_policy=policy)))
    failing = {name for name, one in made.items() if one["failurePolicy"] == "Fail"}
    expected = {"named", "enforced", "policies" if kind == KINDS[1] else "held"}
    assert failing == (expected if policy == "Fail" else set())


@pytest.mark.parametrize("kind", KINDS)
def test_the_systems_our_own_and_excluded_namespaces_are_never_concerned(kind: str) -> None:
    for one in webhooks(kind, Values(excluded_namespaces=("a",))).values():
        first = one["namespaceSelector"]["matchExpressions"][0]
        assert first["operator"] == "NotIn"
        assert first["values"] == ["kube-system", "moorage-system", "moorage-probes", "a"]
        assert one["timeoutSeconds"] <= 5


@pytest.mark.parametrize("kind", KINDS)
def test_each_new_pod_meets_exactly_one_webhook(kind: str) -> None:
    made = webhooks(kind)
    conditions = [made[name]["matchConditions"][0]["expression"] for name in
                  ("named", "enforced", "others")]  # fmt: skip
    assert conditions[1] == conditions[2] == f"!({conditions[0]})"
    selectors = [made[name]["namespaceSelector"]["matchExpressions"][1] for name in
                 ("enforced", "others")]  # fmt: skip
    assert [(one["key"], one["operator"]) for one in selectors] == [
        (ENFORCE_LABEL, "In"),
        (ENFORCE_LABEL, "NotIn"),
    ]


def test_updates_of_held_pods_meet_the_webhook_but_for_those_of_our_controllers() -> None:
    held = webhooks(KINDS[0], Values(namespace="mine"))["held"]
    assert held["rules"][0]["resources"] == ["pods", "pods/status"]
    assert held["rules"][0]["operations"] == ["UPDATE"]
    policy = CompiledPolicy(
        {"matchConditions": held["matchConditions"], "validations": [{"expression": "false"}]}
    )

    def is_met(new: Any, old: Any, user: str = "alice") -> bool:
        request = {"operation": "UPDATE", "userInfo": {"username": user}}
        given = PolicyInput(request=request, object=new, old_object=old)
        (*decisions,) = policy.evaluate(given, None).decisions
        assert not any(one.is_error for one in decisions)
        return bool(decisions)

    def pod(*gates: str, **annotations: str) -> Any:
        spec = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
        held_for = {HELD_FOR_ANNOTATION: annotations["needs"]} if annotations else {}
        return {"metadata": {"annotations": held_for} if held_for else {}, "spec": spec}

    gated = pod("a", HANDLER_GATE, needs="gpu")
    assert not is_met(gated, gated)
    assert is_met(pod("a", needs="gpu"), gated)
    assert is_met(pod(), gated)
    assert is_met(pod(HANDLER_GATE), gated)
    assert is_met(pod(HANDLER_GATE, needs="x"), gated)
    assert not is_met(pod(), pod("a", needs="gpu"))
    assert not is_met(pod(), gated, "system:serviceaccount:mine:moorage-controllers")


def test_cert_manager_takes_the_place_of_our_own_certificates() -> None:
    made = objects(Values(certificates="cert-manager"))
    certificate = next(obj for obj in made if obj["kind"] == "Certificate")
    assert certificate["spec"]["secretName"] == SECRET
    for obj in made:
        if obj["kind"] in KINDS:
            source = obj["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
            assert source == "moorage-system/moorage-webhook"
    deployment = next(obj for obj in made if obj["metadata"]["name"] == "moorage-controllers"
                      and obj["kind"] == "Deployment")  # fmt: skip
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not any("webhook" in one for one in arguments)
    own = next(obj for obj in made if obj["kind"] == "Role"
               and obj["metadata"]["name"] == "moorage-controllers")  # fmt: skip
    assert "secrets" not in {resource for rule in own["rules"] for resource in rule["resources"]}


def test_a_new_replica_is_ready_before_an_old_one_stops() -> None:
    made = {
        obj["metadata"]["name"]: obj for obj in objects(Values()) if obj["kind"] == "Deployment"
    }
    for name in ("moorage-webhook", "moorage-controllers"):
        strategy = made[name]["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxUnavailable": 0, "maxSurge": 1}
        container = made[name]["spec"]["template"]["spec"]["containers"][0]
        assert container["readinessProbe"]
        assert container["securityContext"]["readOnlyRootFilesystem"]

"""Answers to AdmissionReviews, without a server."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest

from moorage.api.errors import BadRequestError
from moorage.api.runtime_group import (
    CHOICE_ANNOTATION,
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    NEEDS_ANNOTATION,
    feature_label,
    handler_label,
)
from moorage.apiserver.admission.runtime_policies import NamespaceRules
from moorage.attach.webhook.reviews import Reviewer
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.placing import TRUE, requires_label
from moorage.runtimeclass.policies import effective_policy
from moorage.runtimeclass.usable_nodes import REQUIRED
from moorage.runtimeclass.workloads import TEMPLATES
from tests.runtimeclass.indexes import node, three_runtimes
from tests.runtimeclass.test_policies import cluster, own

Json = dict[str, Any]


class FakeFacts:
    """The same rules for every namespace."""

    has_profiles = True

    def __init__(self, *policies: Any, annotations: Mapping[str, str] | None = None) -> None:
        kinds = [[policy for policy in policies if bool(policy.metadata.namespace) is is_own]
                 for is_own in (False, True)]  # fmt: skip
        self.has_policies = bool(policies)
        self._rules = NamespaceRules(effective_policy({}, *kinds), annotations or {})
        self._index = three_runtimes()

    def index(self) -> ClassIndex:
        return self._index

    def rules(self, namespace: str) -> NamespaceRules:
        assert namespace == "team"
        return self._rules


def pod(annotations: Json | None = None, **spec: Any) -> Json:
    metadata: Json = {"name": "p", "namespace": "team"}
    if annotations:
        metadata["annotations"] = annotations
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": containers, **spec}}  # fmt: skip


def review(obj: Any, resource: str = "pods", group: str = "", **request: Any) -> bytes:
    asked = {
        "uid": "u1",
        "kind": {"group": group, "version": "v1", "kind": "Whatever"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "operation": "CREATE",
        "name": "p",
        "namespace": "team",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "options": {"kind": "CreateOptions"},
        **request,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps(body).encode()


def answer(body: bytes) -> Json:
    whole = json.loads(body)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert whole["response"]["uid"] == "u1"
    response: Json = whole["response"]
    return response


def patched(obj: Json, response: Json) -> Json:
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"]))
    result: Json = jsonpatch.apply_patch(obj, patch)
    return result


def test_a_pod_gets_the_cheapest_class_for_its_needs() -> None:
    needy = pod({"runtime.moorage.dev/needs": "isolation=kernel", "other": "stays"})
    response = answer(Reviewer(FakeFacts()).mutate(review(needy)))
    assert response["allowed"]
    result = patched(needy, response)
    assert result["spec"]["runtimeClassName"] == "gvisor"
    annotations = result["metadata"]["annotations"]
    assert annotations["other"] == "stays"
    assert "is the cheapest that offers" in annotations["runtime.moorage.dev/class-choice-reason"]
    assert result["spec"]["containers"] == needy["spec"]["containers"]


def test_a_default_class_is_given_and_what_the_author_forged_is_removed() -> None:
    facts = FakeFacts(cluster("c", default_class_name="gvisor"))
    forged = pod({"runtime.moorage.dev/class-choice": "fitted"}, runtimeClassName="kata")
    result = patched(forged, answer(Reviewer(facts).mutate(review(forged))))
    assert "annotations" not in result["metadata"]
    plain = pod()
    result = patched(plain, answer(Reviewer(facts).mutate(review(plain))))
    assert result["spec"]["runtimeClassName"] == "gvisor"


def test_a_pod_without_anything_to_change_gets_no_patch() -> None:
    assert answer(Reviewer(FakeFacts()).mutate(review(pod()))) == {"uid": "u1", "allowed": True}


def test_no_class_for_the_needs_is_a_refusal_that_says_why() -> None:
    needy = pod({"runtime.moorage.dev/needs": "network=none gpu"})
    response = answer(Reviewer(FakeFacts()).mutate(review(needy)))
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    assert "no class offers" in response["status"]["message"]


def test_nulls_of_lists_that_go_does_not_omit_are_as_if_absent() -> None:
    sent = pod(
        runtimeClassName="kata",
        affinity=None,
        nodeSelector=None,
        volumes=[{"name": "v", "projected": {"sources": None}}],
        initContainers=None,
    )
    facts = FakeFacts(cluster("c", minimum_isolation="user-space-kernel"))
    facts._index = gated_index()
    reviewer = Reviewer(facts, places_by_handler=True)
    response = answer(reviewer.mutate(review(sent)))
    assert HANDLER_GATE in str(patched(sent, response)["spec"])
    floor = cluster("c", minimum_isolation="user-space-kernel")
    weak = {**sent, "spec": {**sent["spec"], "runtimeClassName": "runc"}}
    assert not answer(Reviewer(FakeFacts(floor)).validate(review(weak)))["allowed"]


@pytest.mark.parametrize("amount", ["x", "9" * 5000])
def test_amounts_that_are_none_are_refused_rather_than_failed(amount: str) -> None:
    # A webhook that fails may be ignored.
    facts = FakeFacts(own("o", needs=("terminal",)))
    resources = {"requests": {"cpu": amount}}
    odd = pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    response = answer(Reviewer(facts).mutate(review(odd)))
    assert not response["allowed"]
    assert response["status"]["code"] == 400


def gated_index() -> ClassIndex:
    """An index in which no node has Kata, and that is known."""
    index = three_runtimes()
    index.put_node(node("n1", "runc"))
    index.remove_profile("n1.kata")
    return index


def test_only_probes_may_name_a_class_of_probes() -> None:
    reviewer = Reviewer(FakeFacts())
    named = pod(runtimeClassName="moorage-probe-runc.n1")
    response = answer(reviewer.validate(review(named)))
    assert not response["allowed"]
    assert "probes of a runtime agent alone" in response["status"]["message"]
    job = {"metadata": {"name": "j"}, "spec": {"template": named}}
    (warning,) = answer(reviewer.validate(review(job, "jobs", "batch")))["warnings"]
    assert warning.startswith("pods would be refused: class moorage-probe-runc.n1")


def test_floors_and_features_refuse_and_warn() -> None:
    facts = FakeFacts(cluster("c", minimum_isolation="user-space-kernel"))
    response = answer(Reviewer(facts).validate(review(pod(runtimeClassName="runc"))))
    assert not response["allowed"]
    assert "classes that would pass: gvisor" in response["status"]["message"]
    warned = review(pod(runtimeClassName="gvisor", hostNetwork=True))
    response = answer(Reviewer(FakeFacts()).validate(warned))
    assert response["allowed"]
    assert "lacks host-network" in response["warnings"][0]
    strict = FakeFacts(own("o", checks={"*": "Enforce"}))
    assert not answer(Reviewer(strict).validate(warned))["allowed"]


@pytest.mark.parametrize("resource", sorted(TEMPLATES))
def test_templates_of_every_workload_are_warned_of(resource: str) -> None:
    plural, _, group = resource.partition(".")
    template: Any = pod(runtimeClassName="gvisor", hostNetwork=True)
    for field in reversed(TEMPLATES[resource]):
        template = {field: template}
    response = answer(Reviewer(FakeFacts()).validate(review(template, plural, group)))
    assert response["allowed"]
    assert "lacks host-network" in response["warnings"][0]


def test_policies_that_cannot_be_understood_are_refused() -> None:
    policy = {"metadata": {"name": "x"}, "spec": {"needs": ["nonsense"]}}
    body = review(policy, "runtimepolicies", "runtime.moorage.dev")
    response = answer(Reviewer(FakeFacts()).validate(body))
    assert response["status"]["code"] == 422
    assert "spec.needs[0]" in response["status"]["message"]


def test_other_writes_are_allowed_unseen() -> None:
    reviewer = Reviewer(FakeFacts())
    for body in (
        review({}, "configmaps"),
        review(None, operation="DELETE", oldObject=pod()),
        review(pod(), subResource="binding"),
    ):
        assert answer(reviewer.mutate(body)) == {"uid": "u1", "allowed": True}
        assert answer(reviewer.validate(body)) == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":null}',
        review([1]),
        review("text"),
        review(pod(), operation="UPDATE", oldObject=3),
        review(pod(), uid=5),
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}',
    ],
)
def test_bodies_that_are_no_reviews_are_bad_requests(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        Reviewer(FakeFacts()).mutate(body)


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": {"annotations": []}, "spec": {"containers": {}}},
        {"metadata": 3, "spec": "x"},
        {"metadata": {"annotations": {"runtime.moorage.dev/needs": 7}}, "spec": {}},
        {"metadata": {}, "spec": {"runtimeClassName": {}, "nodeSelector": []}},
    ],
)
def test_pods_of_any_shape_are_answered(obj: Json) -> None:
    """API servers send legal pods; others may send anything."""
    reviewer = Reviewer(FakeFacts(cluster("c", needs=("isolation=kernel",))))
    for ask in (reviewer.mutate, reviewer.validate):
        try:
            response = answer(ask(review(obj)))
        except BadRequestError:
            continue
        assert isinstance(response["allowed"], bool)


def _placing(facts: FakeFacts) -> Reviewer:
    return Reviewer(facts, places_by_handler=True)


def test_a_pod_of_a_class_requires_the_labels_of_its_handler() -> None:
    facts = FakeFacts()
    facts.index().put_node(
        node("n1", "runc", "runsc", "kata", labels={handler_label("kata"): "true"})
    )
    reviewer = _placing(facts)
    asked = pod(runtimeClassName="kata")
    response = answer(reviewer.mutate(review(asked)))
    once = patched(asked, response)
    ours = {"key": handler_label("kata"), "operator": "In", "values": ["true"]}
    required = once["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [ours]}]}
    assert "schedulingGates" not in once["spec"]
    # Called again for the same pod, it changes nothing.
    assert "patch" not in answer(reviewer.mutate(review(once)))


def test_a_pod_whose_handler_no_node_has_is_held_and_its_author_is_warned() -> None:
    reviewer = _placing(FakeFacts())
    asked = pod(runtimeClassName="kata", schedulingGates=[{"name": "example.com/mine"}])
    response = answer(reviewer.mutate(review(asked)))
    held = patched(asked, response)
    gates = [{"name": "example.com/mine"}, {"name": HANDLER_GATE}]
    assert held["spec"]["schedulingGates"] == gates
    assert response["warnings"][0].startswith('waiting for a node with the handler "kata"')
    assert "patch" not in answer(reviewer.mutate(review(held)))


@pytest.mark.parametrize(
    "spec", [{}, {"runtimeClassName": "legacy"}, {"runtimeClassName": "kata", "nodeName": "n1"}]
)
def test_pods_without_a_class_or_on_a_node_are_not_placed(spec: Json) -> None:
    assert "patch" not in answer(_placing(FakeFacts()).mutate(review(pod(**spec))))


def _held(facts: FakeFacts) -> Json:
    """Return a pod that is held for Kata, with a need that a policy states."""
    asked = pod(runtimeClassName="kata")
    held = patched(asked, answer(_placing(facts).mutate(review(asked))))
    assert held["metadata"]["annotations"] == {HELD_FOR_ANNOTATION: "gpu"}
    return held


def _updated(facts: FakeFacts, new: Json, old: Json, **request: Any) -> Json:
    body = review(new, operation="UPDATE", oldObject=old, **request)
    response = answer(_placing(facts).mutate(body))
    return patched(new, response) if "patch" in response else new


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("annotations", [{}, {HELD_FOR_ANNOTATION: "terminal"}])
def test_an_update_keeps_what_a_pod_is_held_for(subresource: str, annotations: Json) -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    held = _held(facts)
    forged = {**held, "metadata": {**held["metadata"], "annotations": annotations}}
    assert _updated(facts, forged, held, subResource=subresource) == held
    assert _updated(facts, held, held, subResource=subresource) == held


def test_a_status_that_leaves_out_gates_lifts_none() -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    held = _held(facts)
    bare = {**held, "spec": {}, "metadata": {"name": "p"}}
    kept = _updated(facts, bare, held, subResource="status")
    assert kept["metadata"]["annotations"] == {HELD_FOR_ANNOTATION: "gpu"}
    assert kept["spec"] == {}


def test_a_pod_whose_gate_anyone_removes_still_requires_handler_and_needs() -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    held = _held(facts)
    free = {**held, "metadata": {"name": "p"},
            "spec": {**held["spec"], "schedulingGates": []}}  # fmt: skip
    for forged in (free, {**free, "metadata": {"name": "p", "annotations": {"a": "b"}}}):
        spec = _updated(facts, forged, held)["spec"]
        assert spec["schedulingGates"] == []
        assert requires_label(spec, handler_label("kata"))
        assert requires_label(spec, feature_label("kata", "gpu"))
    # What stood in its terms stays where it was: a gated pod's may only be added to.
    (before,) = held["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    (after,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert (
        after["matchExpressions"][: len(before["matchExpressions"])] == before["matchExpressions"]
    )


def test_a_pod_whose_gate_is_removed_once_a_node_has_the_handler_is_placed_as_a_new_one() -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    held = _held(facts)
    facts.index().put_node(
        node("n1", "runc", "runsc", "kata", labels={handler_label("kata"): TRUE})
    )
    free = {**held, "spec": {**held["spec"], "schedulingGates": []}}
    after = _updated(facts, free, held)
    # Whether the node has what the policy needs is not known.
    assert after["spec"] == free["spec"]
    assert "annotations" not in after["metadata"]


def test_what_a_pod_that_brings_the_gate_is_held_for_follows_from_its_policies() -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    facts.index().put_node(
        node("n1", "runc", "runsc", "kata", labels={handler_label("kata"): TRUE})
    )
    asked = pod({HELD_FOR_ANNOTATION: "terminal"}, runtimeClassName="kata",
                schedulingGates=[{"name": HANDLER_GATE}])  # fmt: skip
    placed = patched(asked, answer(_placing(facts).mutate(review(asked))))
    assert placed["metadata"]["annotations"] == {HELD_FOR_ANNOTATION: "gpu"}
    del asked["spec"]["schedulingGates"]
    placed = patched(asked, answer(_placing(facts).mutate(review(asked))))
    assert "annotations" not in placed["metadata"]


@pytest.mark.parametrize("stated", ["nonsense", "host-network", "a " * 100])
def test_needs_that_a_pod_states_wrongly_take_none_of_its_policies_away(stated: str) -> None:
    facts = FakeFacts(own("o", needs=("gpu", "network=none")))
    asked = pod({NEEDS_ANNOTATION: stated}, runtimeClassName="kata")
    held = patched(asked, answer(_placing(facts).mutate(review(asked))))
    assert held["metadata"]["annotations"][HELD_FOR_ANNOTATION] == "gpu, network=none"


def test_a_policy_of_the_namespace_takes_no_needs_of_the_clusters_away() -> None:
    for needs in (("host-network",), ("nonsense",)):
        facts = FakeFacts(cluster("c", needs=("gpu", "network=none")), own("o", needs=needs))
        asked = pod(runtimeClassName="kata")
        held = patched(asked, answer(_placing(facts).mutate(review(asked))))
        assert held["metadata"]["annotations"][HELD_FOR_ANNOTATION] == "gpu, network=none"


def test_updates_of_pods_that_are_not_held_are_left_alone() -> None:
    facts = FakeFacts(own("o", needs=("gpu",)))
    there = pod({HELD_FOR_ANNOTATION: "gpu"}, runtimeClassName="kata")
    assert _updated(facts, pod(runtimeClassName="kata"), there) == pod(runtimeClassName="kata")
    gated = pod(runtimeClassName="legacy", schedulingGates=[{"name": HANDLER_GATE}])
    free = pod(runtimeClassName="legacy")
    assert _updated(facts, free, gated) == free


def test_a_second_call_for_a_pod_keeps_its_choice() -> None:
    """An API server does not mark the second call (`reinvocationPolicy: IfNeeded`)."""
    reviewer = Reviewer(FakeFacts())
    asked = pod({NEEDS_ANNOTATION: "isolation=kernel"})
    once = patched(asked, answer(reviewer.mutate(review(asked))))
    assert once["metadata"]["annotations"][CHOICE_ANNOTATION] == "fitted"
    assert "patch" not in answer(reviewer.mutate(review(once)))
    # What an author writes of a class that is not the fitted one goes.
    once["spec"]["runtimeClassName"] = "kata"
    again = patched(once, answer(reviewer.mutate(review(once))))
    assert again["metadata"]["annotations"] == {NEEDS_ANNOTATION: "isolation=kernel"}


def test_a_class_quota_is_refused_since_nothing_would_enforce_it() -> None:
    quota = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"className": "gvisor"}}
    asked = review(quota, "runtimeclassquotas", "runtime.moorage.dev", name="q")
    refused = answer(Reviewer(FakeFacts()).validate(asked))
    assert not refused["allowed"]
    assert refused["status"]["code"] == 403
    assert refused["status"]["message"].startswith(
        'runtimeclassquotas.runtime.moorage.dev "q" is forbidden: only the API server of moor up '
    )
    updated = review(
        quota, "runtimeclassquotas", "runtime.moorage.dev", operation="UPDATE", oldObject=quota
    )
    assert answer(Reviewer(FakeFacts()).validate(updated))["allowed"]

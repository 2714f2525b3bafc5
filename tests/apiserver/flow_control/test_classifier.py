"""To which schema and level the requests of a new cluster go."""

from __future__ import annotations

import pytest

from moorage.apiserver.endpoints.routing import verb_of
from moorage.apiserver.flow_control.classifier import Classifier
from moorage.apiserver.flow_control.configuration import Configuration
from moorage.apiserver.registry.request import User
from tests.apiserver.flow_control.requests import (
    ALICE,
    ANONYMOUS,
    CONTROLLERS,
    MASTER,
    NODE,
    SCHEDULER,
    account,
    defaults,
    schema,
    target,
)

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
POD = "/api/v1/namespaces/default/pods/x"


def _classifier(configuration: Configuration) -> Classifier[str]:
    return Classifier((one, f"{one.name} {one.level}") for one in configuration.schemas)


@pytest.mark.parametrize(
    ("user", "method", "path", "expected"),
    [
        (MASTER, "GET", POD, "exempt exempt"),
        (MASTER, "GET", "/version", "exempt exempt"),
        (ALICE, "GET", "/readyz", "probes exempt"),
        (ANONYMOUS, "GET", "/livez/ping", "probes exempt"),
        (ALICE, "POST", "/readyz", "global-default global-default"),
        (ALICE, "GET", POD, "global-default global-default"),
        (ALICE, "GET", "/metrics", "global-default global-default"),
        (ANONYMOUS, "GET", "/version", "global-default global-default"),
        (NODE, "PATCH", "/api/v1/nodes/n1/status", "system-node-high node-high"),
        (NODE, "GET", "/api/v1/nodes", "system-node-high node-high"),
        (NODE, "PUT", LEASE, "system-node-high node-high"),
        (NODE, "GET", POD, "system-nodes system"),
        (CONTROLLERS, "PUT", LEASE, "system-leader-election leader-election"),
        (CONTROLLERS, "DELETE", LEASE, "kube-controller-manager workload-high"),
        (CONTROLLERS, "GET", POD, "kube-controller-manager workload-high"),
        (SCHEDULER, "GET", POD, "kube-scheduler workload-high"),
        (SCHEDULER, "GET", LEASE, "system-leader-election leader-election"),
        (account("kube-system", "x"), "GET", LEASE, "system-leader-election leader-election"),
        (account("kube-system", "x"), "GET", POD, "kube-system-service-accounts workload-high"),
        (account("default", "x"), "GET", POD, "service-accounts workload-low"),
        (User("groupless"), "GET", POD, "catch-all catch-all"),
    ],
)
def test_where_requests_go(user: User, method: str, path: str, expected: str) -> None:
    about = target(path)
    classifier, verb = _classifier(defaults()), verb_of(method, about, {})
    for _ in range(2):
        assert classifier.classify(user, verb, about) == expected


def test_a_namespace_that_a_rule_names_is_distinguished() -> None:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["a"]}
    subject = {"kind": "User", "user": {"name": "alice"}}
    own = schema("own", rules=[{"subjects": [subject], "resourceRules": [rule]}])
    classifier = _classifier(defaults(own))
    for namespace, expected in (("b", "global-default"), ("a", "own"), ("c", "global-default")):
        about = target(f"/api/v1/namespaces/{namespace}/pods/x")
        assert classifier.classify(ALICE, "get", about).split()[0] == expected
    assert classifier.classify(ALICE, "list", target("/api/v1/pods")).startswith("global-default")


def test_what_is_kept_is_bounded_however_many_names_clients_make_up() -> None:
    classifier = _classifier(defaults())
    for number in range(10_000):
        about = target(f"/api/v1/namespaces/n{number}/pods/p{number}")
        classifier.classify(ALICE, "get", about)
    assert len(classifier._kept) == 1
    for number in range(10_000):
        classifier.classify(ALICE, "get", target(f"/x/{number}"))
    assert len(classifier._kept) <= 4096
    classifier.classify(User("u" * 100_000, groups=ALICE.groups), "get", target(POD))
    assert all(len(name) < 2000 for name, *_ in classifier._kept)

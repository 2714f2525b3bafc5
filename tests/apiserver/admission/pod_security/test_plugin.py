"""Audit annotations of Pod Security: what is enforced, and what an audited standard forbids."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.errors import ForbiddenError
from moorage.apiserver.admission.pod_security import Configuration, PodSecurity
from moorage.apiserver.admission.pod_security.policy import Exemptions, Policy, Standard
from moorage.apiserver.registry.kinds import STORED_KINDS
from tests.apiserver.admission.writes import pod, write

PREFIX = "pod-security.kubernetes.io/"
DEPLOYMENT = next(kind for kind in STORED_KINDS if kind.name == "Deployment")
NAMESPACE = next(kind for kind in STORED_KINDS if kind.name == "Namespace")
PRIVILEGED: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]
}
VIOLATES = 'privileged (container "c" must not set securityContext.privileged=true)'


def plugin(configuration: Configuration | None = None, **modes: str) -> PodSecurity:
    labels = {f"{PREFIX}{mode}": level for mode, level in modes.items()}
    return PodSecurity(lambda _: labels, lambda _: [], SystemClock(), configuration)


def test_a_pod_is_annotated_with_what_is_enforced() -> None:
    attributes = write(obj=pod())
    plugin().validate(attributes)
    assert attributes.request.annotations == {f"{PREFIX}enforce-policy": "privileged:latest"}
    attributes = write(obj=pod())
    plugin(enforce="baseline").validate(attributes)
    assert attributes.request.annotations == {f"{PREFIX}enforce-policy": "baseline:latest"}


def test_what_a_pod_would_violate_is_audited() -> None:
    attributes = write(obj=pod(PRIVILEGED))
    plugin(audit="baseline").validate(attributes)
    assert attributes.request.annotations == {
        f"{PREFIX}enforce-policy": "privileged:latest",
        f"{PREFIX}audit-violations": f'would violate PodSecurity "baseline:latest": {VIOLATES}',
    }
    assert attributes.request.warnings == []


def test_a_pod_that_is_refused_is_annotated_too() -> None:
    attributes = write(obj=pod(PRIVILEGED))
    with pytest.raises(ForbiddenError):
        plugin(enforce="baseline", audit="baseline").validate(attributes)
    assert len(attributes.request.annotations) == 2


def test_templates_are_audited_and_enforce_nothing() -> None:
    template = {"metadata": {"name": "d"}, "spec": {"template": {"spec": PRIVILEGED}}}
    attributes = write(DEPLOYMENT, template)
    plugin(audit="baseline").validate(attributes)
    assert list(attributes.request.annotations) == [f"{PREFIX}audit-violations"]


BASELINE = Policy(enforce=Standard("baseline"))


def test_namespaces_without_labels_have_the_default_policy() -> None:
    with pytest.raises(ForbiddenError, match="violates PodSecurity"):
        plugin(Configuration(BASELINE)).validate(write(obj=pod(PRIVILEGED)))
    plugin(Configuration(BASELINE), enforce="privileged").validate(write(obj=pod(PRIVILEGED)))


@pytest.mark.parametrize(
    ("exemptions", "reason"),
    [
        (Exemptions(namespaces=frozenset({"default"})), "namespace"),
        (Exemptions(usernames=frozenset({"alice"})), "user"),
        (Exemptions(runtime_classes=frozenset({"gvisor"})), "runtimeClass"),
    ],
)
def test_exempt_pods_and_templates_are_not_checked(exemptions: Exemptions, reason: str) -> None:
    checks = plugin(Configuration(BASELINE, exemptions), warn="restricted")
    sandboxed = {**PRIVILEGED, "runtimeClassName": "gvisor"}
    template = {"metadata": {"name": "d"}, "spec": {"template": {"spec": sandboxed}}}
    for attributes in (write(obj=pod(sandboxed)), write(DEPLOYMENT, template)):
        checks.validate(attributes)
        assert attributes.request.annotations == {f"{PREFIX}exempt": reason}
        assert attributes.request.warnings == []


def test_a_pod_under_another_class_is_not_exempt() -> None:
    exemptions = Exemptions(runtime_classes=frozenset({"gvisor"}))
    for spec in (PRIVILEGED, {**PRIVILEGED, "runtimeClassName": "crun"}):
        with pytest.raises(ForbiddenError):
            plugin(Configuration(BASELINE, exemptions)).validate(write(obj=pod(spec)))


@pytest.mark.parametrize("old", [None, {"metadata": {"name": "tools"}}])
def test_a_policy_for_an_exempt_namespace_is_warned_about(old: dict[str, Any] | None) -> None:
    labels = {f"{PREFIX}enforce": "restricted", f"{PREFIX}audit": "privileged"}
    attributes = write(NAMESPACE, {"metadata": {"name": "tools", "labels": labels}}, old=old)
    exemptions = Exemptions(namespaces=frozenset({"tools"}))
    assert plugin(Configuration(BASELINE, exemptions)).validate(attributes) is None
    assert attributes.request.warnings == [
        'namespace "tools" is exempt from Pod Security, and the policy (enforce=restricted:latest) '
        "will be ignored"
    ]

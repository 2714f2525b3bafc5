"""Audit annotations of Pod Security: what is enforced, and what an audited standard forbids."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.admission.pod_security import PodSecurity
from moorage.api.clock import SystemClock
from moorage.api.errors import ForbiddenError
from moorage.registry.kinds import STORED_KINDS
from tests.admission.writes import pod, write

PREFIX = "pod-security.kubernetes.io/"
DEPLOYMENT = next(kind for kind in STORED_KINDS if kind.name == "Deployment")
PRIVILEGED: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]
}
VIOLATES = 'privileged (container "c" must not set securityContext.privileged=true)'


def plugin(**modes: str) -> PodSecurity:
    labels = {f"{PREFIX}{mode}": level for mode, level in modes.items()}
    return PodSecurity(lambda _: labels, lambda _: [], SystemClock())


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

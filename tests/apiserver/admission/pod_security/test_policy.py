"""The standards that the labels of a namespace set."""

from __future__ import annotations

import pytest

from moorage.apiserver.admission.pod_security.policy import PREFIX, policy_of


def labels(**values: str) -> dict[str, str]:
    return {PREFIX + key.replace("_", "-"): value for key, value in values.items()}


@pytest.mark.parametrize(
    ("given", "enforce", "warn"),
    [
        ({}, "privileged:latest", "privileged:latest"),
        ({"other": "restricted"}, "privileged:latest", "privileged:latest"),
        (labels(enforce="baseline"), "baseline:latest", "baseline:latest"),
        (labels(enforce="baseline", enforce_version="v1.25"), "baseline:v1.25", "baseline:v1.25"),
        (labels(enforce="baseline", enforce_version="latest"), "baseline:latest",
         "baseline:latest"),
        (labels(enforce="baseline", enforce_version="v1.25", warn_version="v1.0"),
         "baseline:v1.25", "baseline:v1.0"),
        (labels(enforce="restricted", warn="baseline"), "restricted:latest", "baseline:latest"),
        (labels(warn="restricted"), "privileged:latest", "restricted:latest"),
        (labels(enforce="privileged", warn_version="v1.3"), "privileged:latest",
         "privileged:v1.3"),
    ],
)  # fmt: skip
def test_standards(given: dict[str, str], enforce: str, warn: str) -> None:
    policy = policy_of(given)
    assert (str(policy.enforce), str(policy.warn)) == (enforce, warn)
    assert policy.errors == ()


@pytest.mark.parametrize(
    ("given", "enforce", "warn", "says"),
    [
        (labels(enforce="strict"), "restricted:latest", "privileged:latest",
         'enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted'),
        (labels(warn="strict"), "privileged:latest", "privileged:latest",
         'warn]: Invalid value: "strict": must be one of privileged, baseline, restricted'),
        (labels(audit="strict"), "privileged:latest", "privileged:latest",
         'audit]: Invalid value: "strict": must be one of privileged, baseline, restricted'),
        (labels(enforce="baseline", enforce_version="1.25"), "baseline:latest", "baseline:latest",
         'enforce-version]: Invalid value: "1.25": must be "latest" or "v1.x"'),
        (labels(audit_version="v1.01"), "privileged:latest", "privileged:latest",
         'audit-version]: Invalid value: "v1.01": must be "latest" or "v1.x"'),
        (labels(enforce_version=f"v1.{'9' * 99}"), "privileged:latest", "privileged:latest",
         'must be "latest" or "v1.x"'),
    ],
)  # fmt: skip
def test_wrong_labels(given: dict[str, str], enforce: str, warn: str, says: str) -> None:
    policy = policy_of(given)
    assert (str(policy.enforce), str(policy.warn)) == (enforce, warn)
    (error,) = policy.errors
    assert str(error).startswith(f"metadata.labels[{PREFIX}")
    assert str(error).endswith(says)
    assert not policy.permits_all

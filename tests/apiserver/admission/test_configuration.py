"""Configuration files of plugins: what they set, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.quotas import ScopedSelector
from moorage.apiserver.admission.configuration import AdmissionOptions, load_configuration
from moorage.apiserver.admission.options import ConfigurationError
from moorage.apiserver.admission.pod_security.policy import (
    LATEST,
    Configuration,
    Exemptions,
    Policy,
    Standard,
)
from moorage.apiserver.admission.resource_quota import LimitedResource

INNER = {
    "apiVersion": "pod-security.admission.config.k8s.io/v1",
    "kind": "PodSecurityConfiguration",
}
OUTER = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
FULL = {
    **INNER,
    "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"},
    "exemptions": {"usernames": ["root"], "runtimeClasses": ["gvisor"], "namespaces": ["tools"]},
}
LOADED_POLICY = Configuration(
    Policy(enforce=Standard("baseline", 30), warn=Standard("restricted", LATEST)),
    Exemptions(frozenset({"root"}), frozenset({"tools"}), frozenset({"gvisor"})),
)
LOADED = AdmissionOptions(pod_security=LOADED_POLICY)
QUOTA = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"}
LIMITED = {
    **QUOTA,
    "limitedResources": [
        {
            "resource": "pods",
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}],
        },
        {"apiGroup": "apps", "resource": "deployments", "matchContains": ["count/"]},
    ],
}
LOADED_LIMITS = (
    LimitedResource(
        resource="pods",
        scopes=(ScopedSelector(scope_name="PriorityClass", operator="In", values=("high",)),),
    ),
    LimitedResource(resource="deployments.apps", contained=("count/",)),
)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def loaded(document: Any) -> AdmissionOptions:
        path = tmp_path / "admission.yaml"
        text = document if isinstance(document, bytes) else msgspec.json.encode(document)
        path.write_bytes(text)
        return load_configuration(path)

    return loaded


@pytest.mark.parametrize(
    "document",
    [FULL, {**OUTER, "plugins": [{"name": "PodSecurity", "configuration": FULL}]}],
)
def test_it_stands_alone_or_in_an_admission_configuration(load: Any, document: Any) -> None:
    assert load(document) == LOADED


def test_a_plugin_may_name_another_file_beside_its_own(load: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_bytes(msgspec.json.encode(FULL))
    assert load({**OUTER, "plugins": [{"name": "PodSecurity", "path": "pods.json"}]}) == LOADED


@pytest.mark.parametrize(
    "document", [INNER, OUTER, {**OUTER, "plugins": None}, {**INNER, "defaults": {"warn": ""}}]
)
def test_what_is_not_set_stays_as_without_a_file(load: Any, document: Any) -> None:
    assert load(document) == AdmissionOptions()


@pytest.mark.parametrize(
    "inner",
    [
        LIMITED,
        {
            **LIMITED,
            "apiVersion": "resourcequota.admission.k8s.io/v1beta1",
            "kind": "Configuration",
        },
    ],
)
def test_limited_resources_stand_beside_pod_security(load: Any, inner: Any) -> None:
    plugins = [
        {"name": "ResourceQuota", "configuration": inner},
        {"name": "PodSecurity", "configuration": FULL},
    ]
    assert load({**OUTER, "plugins": plugins}) == AdmissionOptions(
        pod_security=LOADED_POLICY, limited_resources=LOADED_LIMITS
    )


def test_limited_resources_stand_alone(load: Any) -> None:
    assert load(LIMITED).limited_resources == LOADED_LIMITS


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"{", "is not YAML"),
        (b"", "Expected `object`, got `null`"),
        (b"[" * 5000, "is not YAML"),
        (b"#" * 1024 * 1024 + b"##", "is longer than 1048576 bytes"),
        ({"kind": "Policy"}, "is of no apiVersion, kind Policy; use apiserver.config"),
        ({**OUTER, "apiVersion": "v1"}, "is of v1, kind AdmissionConfiguration"),
        ({**INNER, "default": {}}, "unknown field `default`"),
        ({**OUTER, "plugins": [{"name": "EventRateLimit"}]},
         'the plugins PodSecurity and ResourceQuota can be configured, not "EventRateLimit"'),
        (b"kind: A\nkind: B\n", 'line 2: key "kind" already set in map'),
        (b"a: &a [x]\nb: " + b"[*a, *a]" * 2, "is not YAML: line 2"),
        ({**QUOTA, "limitedResources": [{}]}, "limitedResources[0].resource: Required value"),
        ({**QUOTA, "limitedResources": [{"resource": "pods", "matchScopes": [{"operator": "="}]}]},
         'limitedResources[0].matchScopes[0].operator: Unsupported value: "=": supported values: '
         "In, NotIn, Exists, DoesNotExist"),
        ({**OUTER, "plugins": [{"name": "ResourceQuota", "configuration": INNER}]},
         "plugin ResourceQuota: is of pod-security.admission.config.k8s.io/v1, kind "
         "PodSecurityConfiguration; use apiserver.config.k8s.io/v1, kind "
         "ResourceQuotaConfiguration"),
        ({**OUTER, "plugins": [{"name": "PodSecurity", "configuration": INNER}] * 2}, "twice"),
        ({**OUTER, "plugins": [{"name": "PodSecurity"}]}, "is of no apiVersion, kind missing"),
        ({**OUTER, "plugins": [{"name": "PodSecurity", "path": "no"}]}, "no cannot be read"),
        (
            {**INNER, "defaults": {"enforce": "strict", "audit-version": "1.3"}},
            'defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, '
            'restricted; defaults.audit-version: Invalid value: "1.3": must be "latest" or "v1.x"',
        ),
        (
            {**INNER, "exemptions": {"namespaces": ["A"]}},
            'exemptions.namespaces[0]: Invalid value: "A": a lowercase RFC 1123 label',
        ),
        (
            {**INNER, "exemptions": {"runtimeClasses": ["a", "a"], "usernames": [""]}},
            'exemptions.runtimeClasses[1]: Duplicate value: "a"; exemptions.usernames[0]: Invalid '
            'value: "": username must not be empty',
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(load: Any, document: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(document)
    assert says in str(caught.value)
    assert "admission.yaml" in str(caught.value)

"""PodSecurityPolicies, Kyverno's and Gatekeeper's policies as RuntimePolicies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.yaml_values import parse_documents
from moorage.migrate.rules import Options, Source, make_plan
from moorage.migrate.rules.policies import allowed_rules

_NAME = "kubernetes.io/metadata.name"


def _migrated(*documents: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The spec of each policy by kind, namespace and name, and the findings that matter."""
    text = "\n---\n".join(map(json.dumps, documents))
    plan = make_plan([Source("a.yaml", text)], {}, Options())
    assert not plan.changed
    policies = {}
    for item in parse_documents(plan.outputs.get("policies.yaml", "")):
        assert item["apiVersion"] == "runtime.moorage.dev/v1alpha1"
        namespace = item["metadata"].get("namespace", "")
        assert bool(namespace) == (item["kind"] == "RuntimePolicy")
        policies[f"{namespace}/{item['metadata']['name']}"] = item["spec"]
    findings = [
        finding.text for finding in plan.findings if "stays in force beside" not in finding.text
    ]
    return policies, findings


# PodSecurityPolicies.


def _psp(name: str = "p", **options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1beta1",
        "kind": "PodSecurityPolicy",
        "metadata": {"name": name},
        "spec": {"privileged": False, "runtimeClass": options} if options else {},
    }


def _role(name: str, *policies: str, **rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {
                "apiGroups": ["policy"],
                "resources": ["podsecuritypolicies"],
                "verbs": ["use"],
                "resourceNames": list(policies),
                **rule,
            }
        ],
    }


def _binding(role: str, namespace: str = "") -> dict[str, Any]:
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"{role}-{namespace}", "namespace": namespace},
        "roleRef": {"kind": "ClusterRole", "name": role},
    }


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"allowedRuntimeClassNames": ["a", "b"]}, {"allowedClasses": ["a", "b", "legacy"]}),
        ({"allowedRuntimeClassNames": []}, {"allowedClasses": ["legacy"]}),
        (
            {"allowedRuntimeClassNames": ["*"], "defaultRuntimeClassName": "a"},
            {"defaultClassName": "a"},
        ),
        (
            {"allowedRuntimeClassNames": ["a"], "defaultRuntimeClassName": "a"},
            {"defaultClassName": "a", "allowedClasses": ["a"]},
        ),
    ],
)
def test_the_classes_of_a_pod_security_policy(
    options: dict[str, Any], spec: dict[str, Any]
) -> None:
    bound = (_role("r", "p"), _binding("r"))
    assert _migrated(_psp(**options), *bound) == ({"/p": spec}, [])


@pytest.mark.parametrize("options", [{}, {"allowedRuntimeClassNames": ["*"]}])
def test_a_pod_security_policy_without_rules_for_classes_is_none(options: dict[str, Any]) -> None:
    assert _migrated(_psp(**options)) == ({}, [])


def test_bindings_say_for_which_namespaces_a_policy_is() -> None:
    policies, findings = _migrated(
        _psp(allowedRuntimeClassNames=["a"]),
        _role("r", "p"),
        _binding("r", "x"),
        _binding("r", "y"),
    )
    rules = {"allowedClasses": ["a", "legacy"]}
    assert policies == {"x/p": rules, "y/p": rules}
    assert not findings


def test_without_bindings_the_namespaces_are_to_be_labelled() -> None:
    policies, findings = _migrated(
        _psp(allowedRuntimeClassNames=["a"]), _role("r", "p", verbs=["get"]), _binding("r")
    )
    selector = {"matchLabels": {"runtime.moorage.dev/policy": "p"}}
    assert policies == {"/p": {"namespaceSelector": selector, "allowedClasses": ["a", "legacy"]}}
    assert "label the namespaces runtime.moorage.dev/policy=p" in findings[0]


def test_of_several_policies_a_pod_needed_one_so_none_is_made() -> None:
    policies, findings = _migrated(
        _psp(allowedRuntimeClassNames=["a"]), _psp("q"), _role("r", "p"), _role("s", "q"),
        _binding("r", "x"), _binding("s"),
    )  # fmt: skip
    assert not policies
    assert "in namespace x q can be used too" in findings[0]


# Kyverno.

_PODS = {"any": [{"resources": {"kinds": ["Pod"]}}]}


def _kyverno(*rules: dict[str, Any], kind: str = "ClusterPolicy", **spec: Any) -> dict[str, Any]:
    named = [{"name": f"r{index}", "match": _PODS, **rule} for index, rule in enumerate(rules)]
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p", "namespace": "team"} if kind == "Policy" else {"name": "p"},
        "spec": {"rules": named, "validationFailureAction": "Enforce", **spec},
    }


def _pattern(value: Any, key: str = "=(runtimeClassName)") -> dict[str, Any]:
    return {"validate": {"message": "no", "pattern": {"=(spec)": {key: value}}}}


def _deny(operator: str, value: Any, key: str = "request.object.spec.runtimeClassName") -> Any:
    condition = {"key": f"{{{{ {key} }}}}", "operator": operator, "value": value}
    return {"validate": {"deny": {"conditions": {"any": [condition]}}}}


def _mutation(key: str, value: str = "gvisor") -> dict[str, Any]:
    return {"mutate": {"patchStrategicMerge": {"spec": {key: value}}}}


@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        (_mutation("+(runtimeClassName)"), {"defaultClassName": "gvisor"}),
        (
            _mutation("runtimeClassName"),
            {"defaultClassName": "gvisor", "enforceDefault": True, "allowedClasses": ["gvisor"]},
        ),
        (
            {
                "mutate": {
                    "patchesJson6902": "- op: add\n  path: /spec/runtimeClassName\n  value: gvisor"
                }
            },
            {"defaultClassName": "gvisor", "enforceDefault": True, "allowedClasses": ["gvisor"]},
        ),
        (_pattern("a | b"), {"allowedClasses": ["a", "b", "legacy"]}),
        (_pattern("a", "runtimeClassName"), {"allowedClasses": ["a"]}),
        (_pattern("null", "X(runtimeClassName)"), {"allowedClasses": ["legacy"]}),
        (_pattern("kata-*"), {"minimumIsolation": "virtual-machine"}),
        (_pattern("gvisor* | kata-*"), {"minimumIsolation": "user-space-kernel"}),
        (
            {
                "validate": {
                    "anyPattern": [{"spec": {"runtimeClassName": name}} for name in ("a", "b")]
                }
            },
            {"allowedClasses": ["a", "b"]},
        ),
        (_deny("AnyNotIn", ["a", "b"]), {"allowedClasses": ["a", "b"]}),
        (_deny("NotEquals", "a"), {"allowedClasses": ["a"]}),
        (
            _deny("NotIn", ["a", ""], "request.object.spec.runtimeClassName || ''"),
            {"allowedClasses": ["a", "legacy"]},
        ),
        (
            _deny("NotIn", ["a"], "request.object.spec.runtimeClassName || ''"),
            {"allowedClasses": ["a"]},
        ),
    ],
)
def test_a_rule_of_kyverno(rule: dict[str, Any], spec: dict[str, Any]) -> None:
    policies, findings = _migrated(_kyverno(rule))
    assert policies == {"/p": spec}
    assert not [finding for finding in findings if "became" not in finding and "now" not in finding]


@pytest.mark.parametrize(
    ("key", "value", "spec"),
    [
        ("'none'", ["a", "b"], {"allowedClasses": ["a", "b"]}),
        ("'none'", ["a", "none"], {"allowedClasses": ["a", "none", "legacy"]}),
        ("''", ["a", ""], {"allowedClasses": ["a", "legacy"]}),
    ],
)
def test_a_denial_says_what_a_pod_without_a_class_counts_as(
    key: str, value: list[str], spec: dict[str, Any]
) -> None:
    rule = _deny("AnyNotIn", value, f"request.object.spec.runtimeClassName || {key}")
    assert _migrated(_kyverno(rule)) == ({"/p": spec}, [])


def test_a_mutation_of_pods_without_a_class_is_a_default() -> None:
    rule = {
        "name": "r",
        "match": {"resources": {"kinds": ["Pod"]}},
        "preconditions": {
            "all": [
                {
                    "key": "{{ request.object.spec.runtimeClassName || '' }}",
                    "operator": "Equals",
                    "value": "",
                }
            ]
        },
        "mutate": {"patchStrategicMerge": {"spec": {"runtimeClassName": "a"}}},
    }
    assert _migrated(_kyverno(rule)) == ({"/p": {"defaultClassName": "a"}}, [])


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (_pattern("?*"), "it asks for any class"),
        (_pattern("!runc"), "has operators without counterpart"),
        (_pattern("a", "^(runtimeClassName)"), "an anchor without counterpart"),
        (_pattern("mine-*"), "matches no class among the files"),
        (_deny("In", ["runc"]), "it forbids certain classes"),
        (_deny("NotIn", "{{ allowed }}"), "no constants"),
        (
            _deny("NotIn", ["a"], "request.object.spec.runtimeClassName || x"),
            "another expression",
        ),
        (_mutation("runtimeClassName", "{{ class }}"), "no constant"),
        (
            {"mutate": {"targets": [{}], **_mutation("runtimeClassName")["mutate"]}},
            "it changes other objects",
        ),
        (
            {"validate": {"pattern": {"spec": {"runtimeClassName": "a", "hostNetwork": False}}}},
            "asks for more than the class",
        ),
        (
            {**_pattern("a"), "preconditions": [{"key": "{{ request.userInfo }}"}]},
            "preconditions have no counterpart",
        ),
        (
            {"validate": {"failureAction": "Audit", **_pattern("a")["validate"]}},
            "it only audits",
        ),
        (
            {**_pattern("a"), "match": {"resources": {"kinds": ["Deployment"]}}},
            "it is not about pods",
        ),
        (
            {**_pattern("a"), "match": {"resources": {"kinds": ["Pod"], "selector": {}}}},
            "it selects pods by selector",
        ),
        (
            {**_pattern("a"), "match": {"resources": {"kinds": ["Pod"], "namespaces": ["a-*"]}}},
            "its namespaces have wildcards",
        ),
        (
            {
                **_pattern("a"),
                "match": {"any": [{"resources": {"kinds": ["Pod"]}, "roles": ["x"]}]},
            },
            "it selects requests by their user",
        ),
        (
            {**_pattern("a"), "exclude": {"any": [{"resources": {"names": ["x"]}}]}},
            "it excludes pods by more than their namespace",
        ),
    ],
)
def test_a_rule_of_kyverno_without_counterpart_is_named_and_left_out(
    rule: dict[str, Any], reason: str
) -> None:
    policies, findings = _migrated(_kyverno(rule))
    assert not policies
    assert len(findings) == 1
    assert findings[0].startswith("rule 'r0': ")
    assert reason in findings[0]


def test_namespaces_of_kyverno_become_selectors() -> None:
    match = {"any": [
        {"resources": {"kinds": ["Pod"], "namespaces": ["b", "a"]}},
        {"resources": {"kinds": ["Pod"], "namespaceSelector": {"matchLabels": {"x": "y"}}}},
    ]}  # fmt: skip
    exclude = {"any": [{"resources": {"namespaces": ["kube-system"]}}]}
    policies, _ = _migrated(_kyverno({**_pattern("a"), "match": match, "exclude": exclude}))
    without = {"key": _NAME, "operator": "NotIn", "values": ["kube-system"]}
    named = {"key": _NAME, "operator": "In", "values": ["a", "b"]}
    selectors = [spec["namespaceSelector"] for spec in policies.values()]
    assert selectors == [
        {"matchLabels": {"x": "y"}, "matchExpressions": [without]},
        {"matchExpressions": [named, without]},
    ]
    assert list(policies) == ["/p-r0-1", "/p-r0-2"]


def test_rules_of_kyverno_for_the_same_pods_become_one_policy() -> None:
    policies, _ = _migrated(_kyverno(_mutation("+(runtimeClassName)", "a"), _pattern("a | b")))
    assert policies == {"/p": {"defaultClassName": "a", "allowedClasses": ["a", "b", "legacy"]}}


def test_rules_of_kyverno_that_contradict_each_other_stay_two_policies() -> None:
    policies, _ = _migrated(_kyverno(_mutation("+(runtimeClassName)", "a"), _pattern("b")))
    assert policies == {
        "/p-r0": {"defaultClassName": "a"},
        "/p-r1": {"allowedClasses": ["b", "legacy"]},
    }


def test_a_namespaced_policy_of_kyverno_is_one_of_its_namespace() -> None:
    policies, _ = _migrated(_kyverno(_pattern("a"), kind="Policy"))
    assert policies == {"team/p": {"allowedClasses": ["a", "legacy"]}}


def test_a_policy_of_kyverno_about_other_things_is_left_alone() -> None:
    assert _migrated(_kyverno({"validate": {"pattern": {"spec": {"hostPID": False}}}})) == ({}, [])


def test_a_policy_in_cel_is_to_be_written_by_hand() -> None:
    document = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {"validations": [{"expression": "object.spec.runtimeClassName == 'a'"}]},
    }
    policies, findings = _migrated(document)
    assert not policies
    assert "written in CEL" in findings[0]


# Gatekeeper.


def _assign(tests: Any = None, **spec: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = {"assign": {"value": "gvisor"}}
    if tests is not None:
        parameters["pathTests"] = tests
    return {
        "apiVersion": "mutations.gatekeeper.sh/v1",
        "kind": "Assign",
        "metadata": {"name": "p"},
        "spec": {
            "applyTo": [{"groups": [""], "kinds": ["Pod"], "versions": ["v1"]}],
            "location": "spec.runtimeClassName",
            "parameters": parameters,
            **spec,
        },
    }


_ABSENT = [{"subPath": "spec.runtimeClassName", "condition": "MustNotExist"}]


def test_an_assignment_of_gatekeeper_is_a_default() -> None:
    match = {"namespaces": ["a"], "excludedNamespaces": ["b"], "scope": "Namespaced"}
    policies, findings = _migrated(_assign(_ABSENT, match=match))
    expressions = [
        {"key": _NAME, "operator": "In", "values": ["a"]},
        {"key": _NAME, "operator": "NotIn", "values": ["b"]},
    ]
    assert policies == {
        "/p": {
            "namespaceSelector": {"matchExpressions": expressions},
            "defaultClassName": "gvisor",
        }
    }
    assert not findings


def test_an_assignment_that_overwrites_allows_no_other_class() -> None:
    policies, findings = _migrated(_assign())
    assert policies == {
        "/p": {"defaultClassName": "gvisor", "enforceDefault": True, "allowedClasses": ["gvisor"]}
    }
    assert "these are refused now" in findings[0]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (_assign(match={"labelSelector": {}}), "it selects pods by labelSelector"),
        (_assign(match={"namespaces": ["a-*"]}), "its namespaces have wildcards"),
        (_assign(match={"kinds": [{"kinds": ["Deployment"]}]}), "it does not match pods"),
        (_assign(location="spec.template.spec.runtimeClassName"), "only an Assign of"),
        (_assign(parameters={"assign": {"fromMetadata": {}}}), "no constant"),
        (_assign(applyTo=[]), "it is not about pods"),
        (_assign([{"subPath": "spec.x", "condition": "MustExist"}]), "pathTests"),
    ],
)
def test_an_assignment_without_counterpart_is_named(document: dict[str, Any], reason: str) -> None:
    policies, findings = _migrated(document)
    assert not policies
    assert reason in findings[0]


_TEMPLATE = {
    "apiVersion": "templates.gatekeeper.sh/v1",
    "kind": "ConstraintTemplate",
    "metadata": {"name": "classes"},
    "spec": {
        "crd": {"spec": {"names": {"kind": "Classes"}}},
        "targets": [{"rego": "input.review.object.spec.runtimeClassName"}],
    },
}


def _constraint(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": "Classes",
        "metadata": {"name": "p"},
        "spec": spec,
    }


def test_a_constraint_with_class_names_is_an_allow_list_to_be_compared() -> None:
    policies, findings = _migrated(
        _TEMPLATE, _constraint(parameters={"allowedRuntimeClasses": ["a", "b"]})
    )
    assert policies == {"/p": {"allowedClasses": ["a", "b"]}}
    assert "the Rego of classes was not read: compare them" in findings[0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"parameters": {"x": ["a"]}}, "no parameter lists the allowed ones"),
        ({"enforcementAction": "warn"}, "its enforcementAction is warn"),
    ],
)
def test_a_constraint_without_counterpart_is_named(spec: dict[str, Any], reason: str) -> None:
    policies, findings = _migrated(_TEMPLATE, _constraint(**spec))
    assert not policies
    assert reason in findings[0]


def test_a_constraint_of_another_template_is_left_alone() -> None:
    constraint = _constraint(parameters={"allowedRuntimeClasses": ["a"]})
    assert _migrated(constraint) == ({}, [])


# What the API would refuse.


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            _psp(allowedRuntimeClassNames=["a"], defaultRuntimeClassName="b"),
            "its default class 'b' is none of those that it allows",
        ),
        (_psp(allowedRuntimeClassNames=["A!"]), "the class 'A!': a lowercase RFC 1123 subdomain"),
        (_psp(allowedRuntimeClassNames=[f"c{n}" for n in range(300)]), "more than 256 classes"),
        (_assign(match={"namespaces": [f"n{n}" for n in range(70)]}), "more than 64 terms"),
        (
            _assign(match={"namespaceSelector": {"matchLabels": {"not a key": "x"}}}),
            "has a key that is no label",
        ),
        (
            _assign(match={"namespaceSelector": {"matchLabels": {"key": 5}}}),
            "has a value for key that no label can have",
        ),
        (
            _assign(match={"namespaceSelector": {"matchExpressions": [{"operator": "Gt"}]}}),
            "an expression that is none",
        ),
    ],
)
def test_a_policy_that_the_api_would_refuse_is_not_made(
    document: dict[str, Any], reason: str
) -> None:
    policies, findings = _migrated(document)
    assert not policies
    (problem,) = [text for text in findings if "valid RuntimePolicy" in text]
    assert reason in problem


# Patterns.


@given(
    st.text("ab*?", max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=6), max_size=4, unique=True),
)
def test_a_pattern_matches_as_shells_match(pattern: str, names: list[str]) -> None:
    from fnmatch import fnmatchcase

    rules, _ = allowed_rules([pattern], names)
    matching = tuple(name for name in names if fnmatchcase(name, pattern))
    if "*" not in pattern and "?" not in pattern:
        assert rules is not None
        assert rules.allowed == (pattern,)
    elif matching:
        assert rules is not None
        assert rules.allowed == matching
    else:
        assert rules is None

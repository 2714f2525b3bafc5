"""Manifests are checked with the lines of their fields, for every workload kind."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimeclass.workloads import POD_PATHS
from moorage.runtimes.checks import (
    Facts,
    FactsError,
    Result,
    UnreadableError,
    check_manifests,
    read_manifests,
    report,
)
from moorage.runtimes.checks.check import is_workload
from moorage.runtimes.checks.report import RULES

_FACTS = """\
apiVersion: v1
kind: List
items:
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: gvisor}, handler: runsc}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: runc}, handler: runc}
- apiVersion: runtime.moorage.dev/v1alpha1
  kind: RuntimeProfile
  metadata: {name: n1.runsc}
  spec: {nodeName: n1, handler: runsc}
  status:
    isolation: user-space-kernel
    conditions: [{type: Working, status: "True"}]
    features: [{name: host-network, state: Unsupported}, {name: exec, state: Supported}]
- apiVersion: runtime.moorage.dev/v1alpha1
  kind: RuntimeProfile
  metadata: {name: n1.runc}
  spec: {nodeName: n1, handler: runc}
  status:
    isolation: shared-kernel
    conditions: [{type: Working, status: "True"}]
---
apiVersion: runtime.moorage.dev/v1alpha1
kind: ClusterRuntimePolicy
metadata: {name: floor}
spec:
  minimumIsolation: user-space-kernel
  namespaceSelector: {matchLabels: {tier: untrusted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: jail, labels: {tier: untrusted}}
"""


def facts(text: str = _FACTS) -> Facts:
    known = Facts()
    for manifest in read_manifests(text, "facts.yaml"):
        known.add(manifest.value)
    known.complete_nodes()
    return known


def check(text: str, namespace: str = "default") -> list[Result]:
    return check_manifests(read_manifests(text, "m.yaml"), facts(), namespace)


_POD = """\
# A comment.
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  runtimeClassName: gvisor
  hostNetwork: true
  containers:
  - name: c
"""


def test_a_field_that_asks_for_too_much_is_found_at_its_line() -> None:
    assert check(_POD) == [
        Result(
            file="m.yaml", line=8, rule="feature", level="warning", kind="Pod",
            namespace="default", name="p", field="spec.hostNetwork",
            message="class gvisor lacks host-network; classes that would do: runc",
            classes=("runc",),
        )
    ]  # fmt: skip


def _nested(kind: str) -> str:
    pod: dict[str, Any] = {
        "spec": {"runtimeClassName": "gvisor", "hostNetwork": True, "containers": [{"name": "c"}]}
    }
    for field in reversed(POD_PATHS[kind]):
        pod = {field: pod}
    return yaml.safe_dump({"kind": kind, "metadata": {"name": "w"}, **pod}, sort_keys=False)


@pytest.mark.parametrize("kind", POD_PATHS)
def test_every_workload_kind_is_checked(kind: str) -> None:
    text = _nested(kind)
    (result,) = check(text)
    assert (result.kind, result.rule) == (kind, "feature")
    assert result.field == ".".join((*POD_PATHS[kind], "spec", "hostNetwork"))
    assert "hostNetwork" in text.splitlines()[result.line - 1]
    listed = yaml.safe_dump({"kind": "List", "items": [{}, yaml.safe_load(text)]})
    (result,) = check(listed)
    assert "hostNetwork" in listed.splitlines()[result.line - 1]


@pytest.mark.parametrize(
    ("change", "namespace", "rule", "line", "said"),
    [
        (("gvisor", "gone"), "default", "class-missing", 7, 'RuntimeClass "gone" does not exist'),
        (("gvisor", "runc"), "jail", "floor", 7,
         "ClusterRuntimePolicy floor sets the floor user-space-kernel, and the isolation of class "
         "runc is shared-kernel"),
        (("  runtimeClassName: gvisor\n", ""), "jail", "floor", 6, "of no class is shared-kernel"),
        (("metadata:\n", "metadata:\n  annotations: {runtime.moorage.dev/needs: gpus}\n"),
         "default", "feature", 5, "unknown need 'gpus'"),
        (("  runtimeClassName: gvisor\n", "  priority: high\n  containers: []\n"), "default", "",
         0, ""),
        (("kind: Pod", "kind: ConfigMap"), "default", "", 0, ""),
    ],
)  # fmt: skip
def test_rules_and_lines(
    change: tuple[str, str], namespace: str, rule: str, line: int, said: str
) -> None:
    results = check(_POD.replace(*change), namespace)
    found = [(one.rule, one.line) for one in results if said and said in one.message]
    assert found == ([(rule, line)] if rule else [])


def test_a_class_of_probes_cannot_be_named() -> None:
    (found,) = check(_POD.replace("gvisor", "moorage-probe-runsc.n1"))
    assert (found.rule, found.level) == ("class-closed", "error")


_KATA = """
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata}
"""
_WAITS = (
    'waiting for a node with the handler "kata" of RuntimeClass kata: no node that the pod may use '
    "has it; install it on one, or use another class"
)


@pytest.mark.parametrize(
    ("more", "namespace", "messages"),
    [
        (_KATA, "default", [_WAITS]),
        (_KATA, "kube-system", []),
        (
            f"{_KATA}- {{apiVersion: v1, kind: Node, metadata: {{name: unknown}}}}\n",
            "default",
            [],
        ),
        (
            f"{_KATA}- apiVersion: runtime.moorage.dev/v1alpha1\n"
            "  kind: RuntimeProfile\n"
            "  metadata: {name: n1.kata}\n"
            "  spec: {nodeName: n1, handler: kata}\n"
            "  status: {conditions: [{type: Working, status: 'False'}]}\n",
            "default",
            [_WAITS],
        ),
        (
            f"{_KATA}- apiVersion: runtime.moorage.dev/v1alpha1\n"
            "  kind: RuntimeProfile\n"
            "  metadata: {name: n2.kata}\n"
            "  spec: {nodeName: n2, handler: kata}\n"
            "  status: {conditions: [{type: Working, status: 'True'}]}\n"
            "- {apiVersion: v1, kind: Node, metadata: {name: n2}}\n",
            "default",
            [],
        ),
    ],
)
def test_a_class_whose_handler_no_node_has_is_a_warning(
    more: str, namespace: str, messages: list[str]
) -> None:
    known = facts(_FACTS.replace("- {apiVersion", f"{more.lstrip()}- {{apiVersion", 1))
    text = _POD.replace("gvisor", "kata").replace("  hostNetwork: true\n", "")
    results = check_manifests(read_manifests(text, "m.yaml"), known, namespace)
    results = [one for one in results if one.rule != "features-unknown"]
    assert [(one.rule, one.level, one.line) for one in results] == [
        ("handler-missing", "warning", 7) for _ in messages
    ]
    assert [one.message for one in results] == messages


def test_needs_are_fitted_offline() -> None:
    text = _POD.replace("  runtimeClassName: gvisor\n  hostNetwork: true\n", "")
    needs = "metadata:\n  annotations:\n    runtime.moorage.dev/needs: {}\n"
    assert check(text.replace("metadata:\n", needs.format("isolation=kernel, exec"))) == []
    (result,) = check(text.replace("metadata:\n", needs.format("gpu")))
    assert (result.rule, result.level) == ("class-choice", "error")
    assert "gvisor: whether it has gpu is unknown" in result.message


def test_anchors_and_merged_keys_have_lines() -> None:
    text = """\
kind: Pod
metadata: {name: p}
x: &base
  hostNetwork: true
spec:
  <<: *base
  runtimeClassName: gvisor
  containers: []
"""
    (result,) = check(text)
    assert result.line == 4


@pytest.mark.parametrize(
    "text",
    ["a: [", "\ta: b", "{}: " * 3000, "[" * 5000, "a: &a [*a]", "a: \x00"],
    ids=range(6),
)
def test_what_is_no_yaml_is_an_error_in_one_line(text: str) -> None:
    with pytest.raises(UnreadableError) as error:
        read_manifests(text, "m.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "spec",
    ["7", "[]", "{containers: {a: b}}", "{nodeSelector: [a]}", "{runtimeClassName: [a]}",
     "{runtimeClassName: gvisor, nodeSelector: {a: {b: c}}}",
     "{containers: [{resources: {requests: {cpu: lots}}}]}"],
)  # fmt: skip
def test_specifications_of_wrong_types_are_results(spec: str) -> None:
    metadata = "{name: p, annotations: {runtime.moorage.dev/needs: exec}}"
    text = f"kind: Pod\nmetadata: {metadata}\nspec: {spec}\n"
    assert all(result.rule in RULES for result in check(text))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["gvisor", "x", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["containers", "securityContext", "nodeSelector", "annotations", "labels",
                         "runtimeClassName", "resources", "requests", "name", "spec", "metadata"]),
        inner, max_size=4,
    ),
    max_leaves=15,
)  # fmt: skip


@given(st.sampled_from(sorted(POD_PATHS)), _JSON, _JSON)
def test_no_manifest_breaks_the_check(kind: str, metadata: Any, spec: Any) -> None:
    text = msgspec.json.encode({"kind": kind, "metadata": metadata, "spec": spec}).decode()
    for result in check(text):
        assert result.line == 1
        assert result.rule in RULES


def test_a_fact_that_does_not_decode_is_named() -> None:
    with pytest.raises(FactsError, match=r"RuntimeClass bad: .*int"):
        facts("kind: RuntimeClass\nmetadata: {name: bad}\nhandler: 7\n")
    with pytest.raises(FactsError, match="Node n: quantities must match"):
        facts("kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: lots}}\n")


def test_reports() -> None:
    results = check(_POD)
    assert report(results, "text", checked=1) == (
        "m.yaml:8: warning: Pod default/p: spec.hostNetwork: class gvisor lacks host-network; "
        "classes that would do: runc [feature]\n"
        "1 workload checked: 0 errors, 1 warning"
    )
    document = msgspec.json.decode(report(results, "json", checked=1))
    assert document["workloads"] == 1
    assert document["results"][0]["line"] == 8


def test_sarif_has_what_its_schema_requires() -> None:
    """Source: SARIF 2.1.0 §3.13 (log), §3.14 (run), §3.18 (tool), §3.27 (result)."""
    document = msgspec.json.decode(report(check(_POD), "sarif", checked=1))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "moor check"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    (result,) = run["results"]
    assert result["message"]["text"]
    assert ids[result["ruleIndex"]] == result["ruleId"]
    assert result["level"] in ("none", "note", "warning", "error")
    (location,) = result["locations"]
    physical = location["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "m.yaml"}
    assert physical["region"] == {"startLine": 8}
    assert location["logicalLocations"][0]["fullyQualifiedName"] == (
        "Pod default/p spec.hostNetwork"
    )


def test_merges_of_merges_are_looked_at_once() -> None:
    lines = ["x0: &a0 {z: 1}"]
    lines += [
        f"x{one}: &a{one} {{<<: [*a{one - 1}, *a{one - 1}], y{one}: 2}}" for one in range(1, 40)
    ]
    lines += ["spec:", "  <<: [*a39, *a3]"]
    (manifest,) = read_manifests("\n".join(lines), "f")
    assert manifest.line(("spec", "missing")) == 41
    assert manifest.line(("spec", "z")) == 1
    assert manifest.line(("spec", "y3")) == 4
    chain = ["x0: &a0 {z: 1}", *(f"x{one}: &a{one} {{<<: *a{one - 1}}}" for one in range(1, 400))]
    (manifest,) = read_manifests("\n".join([*chain, "spec: {<<: *a399}"]), "f")
    assert manifest.line(("spec", "z")) == 1


_CUSTOM = """\
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: r}
spec: {template: {spec: {runtimeClassName: nosuch, containers: [{name: c, image: x}]}}}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: k}
spec: {template: {spec: {runtimeClassName: nosuch, containers: [{image: x}]}}}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: p}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {runtimeClassName: nosuch, containers: [{name: c}]}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: j}
spec:
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {runtimeClassName: nosuch, containers: [{name: c}]}}}}
---
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: s}
spec: {podTemplate: {spec: {runtimeClassName: nosuch, containers: [{name: c}]}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: v}
spec: {tasks: [{template: {spec: {runtimeClassName: nosuch, containers: [{name: c}]}}}]}
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: t}
spec: {podTemplate: {runtimeClassName: nosuch}}
"""


def test_templates_in_custom_resources_are_found_by_their_shape() -> None:
    results = check(_CUSTOM)
    assert [(one.kind, one.field, one.rule) for one in results] == [
        (kind, f"{place}.runtimeClassName", "class-missing")
        for kind, place in (
            ("Rollout", "spec.template.spec"),
            ("Service", "spec.template.spec"),
            ("PyTorchJob", "spec.pytorchReplicaSpecs.Master.template.spec"),
            ("JobSet", "spec.replicatedJobs[0].template.spec.template.spec"),
            ("Sandbox", "spec.podTemplate.spec"),
            ("Job", "spec.tasks[0].template.spec"),
            ("TaskRun", "spec.podTemplate"),
        )
    ]
    assert len({one.line for one in results}) == 7


def test_fields_of_templates_in_custom_resources_are_checked() -> None:
    text = """\
    apiVersion: argoproj.io/v1alpha1
    kind: Rollout
    metadata: {name: r}
    spec:
      template:
        spec:
          hostNetwork: true
          runtimeClassName: gvisor
          containers: [{name: c, image: x}]
    """
    (result,) = check(textwrap.dedent(text))
    assert (result.rule, result.field, result.line) == (
        "feature",
        "spec.template.spec.hostNetwork",
        7,
    )


@pytest.mark.parametrize(
    "text",
    [
        "{kind: CustomResourceDefinition, spec: {versions: [{schema: {properties: {spec: "
        "{properties: {containers: {type: array}}}}}}]}}",
        "{kind: ConfigMap, data: {spec: 'containers: []'}}",
        "{kind: Service, apiVersion: v1, spec: {ports: [{port: 80}]}}",
        "{kind: X, spec: {containers: []}}",
        "{kind: X, spec: {containers: [1]}}",
    ],
)
def test_what_only_looks_like_a_template_is_none(text: str) -> None:
    assert check(text) == []
    assert not is_workload(read_manifests(text, "m.yaml")[0])


def test_a_handler_that_no_probe_has_looked_at_is_named_once() -> None:
    text = "\n---\n".join([_POD.replace("gvisor", "runc").replace("hostNetwork: true", "x: 1")] * 2)
    (result,) = check(text)
    assert (result.rule, result.level) == ("features-unknown", "warning")
    assert 'handler "runc" of RuntimeClass runc yet' in result.message


def test_a_class_whose_selector_no_node_matches_is_a_warning() -> None:
    more = """\
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sel}
handler: runsc
scheduling: {nodeSelector: {pool: sandboxes}}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: LABEL}}
"""
    text = _POD.replace("gvisor", "sel").replace("  hostNetwork: true\n", "")
    for label, rules in (("other", ["no-node"]), ("sandboxes", [])):
        known = facts(_FACTS + more.replace("LABEL", label))
        results = check_manifests(read_manifests(text, "m.yaml"), known)
        assert [one.rule for one in results] == rules
    without_nodes = facts(_FACTS + more.partition("---\napiVersion: v1")[0])
    assert check_manifests(read_manifests(text, "m.yaml"), without_nodes) == []


@pytest.mark.parametrize(
    "text",
    [
        "a: {{ .Values.x }}\nb: 1",
        "{{- if .Values.y }}\na: 1\n{{- end }}",
        "a: [{{ include 'x' . }}]",
    ],
)
def test_a_helm_template_is_to_be_rendered_first(text: str) -> None:
    with pytest.raises(UnreadableError, match="is a Helm template: render it first"):
        read_manifests(text, "m.yaml")


def test_the_name_of_a_class_in_a_template_of_helm_is_to_be_rendered() -> None:
    (result,) = check(_POD.replace("gvisor", "'{{ .Values.runtimeClass }}'"))
    assert "is a Helm template: render it first" in result.message

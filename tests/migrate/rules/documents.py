"""Documents to migrate, as Hypothesis draws them: sound ones, odd ones and broken ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "kata", "kata.qemu", "kata-qemu", "x.y.z", "runsc"])
HANDLERS = st.one_of(NAMES, st.sampled_from(["", "A_b", "a..b", "-", "k" * 64]))
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "a.b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)
_OVERHEAD = st.fixed_dictionaries({"podFixed": st.just({"cpu": "250m", "memory": "120Mi"})})
_SCHEDULING = st.fixed_dictionaries({"nodeSelector": st.just({"runtime": "kata"})})


@st.composite
def classes(draw: st.DrawFn) -> dict[str, Any]:
    """RuntimeClasses of all versions, legal and not."""
    version = draw(st.sampled_from(["v1alpha1", "v1alpha1", "v1beta1", "v1"]))
    document: dict[str, Any] = {
        "apiVersion": f"node.k8s.io/{version}",
        "kind": "RuntimeClass",
        "metadata": {"name": draw(NAMES)},
    }
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        more["overhead"] = draw(_OVERHEAD)
    if draw(st.booleans()):
        more["scheduling"] = draw(_SCHEDULING)
    handler = draw(HANDLERS)
    if version == "v1alpha1":
        spec = {"runtimeHandler": handler, **more}
        if draw(st.booleans()):
            spec = dict(reversed(spec.items()))
        if draw(st.integers(0, 4)) == 0:
            del spec["runtimeHandler"]
        document["spec"] = spec
    else:
        document |= {"handler": handler, **more}
    if draw(st.booleans()):
        document = dict(reversed(document.items()))
    return document


_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "io.kubernetes.cri.untrusted-workload",
            "io.kubernetes.cri-o.TrustedSandbox",
            "runtime.frakti.alpha.kubernetes.io/OSContainer",
            "experimental.windows.kubernetes.io/isolation-type",
            "example.com/other",
        ]
    ),
    st.sampled_from(["true", "false", "hyperv", "odd"]),
    max_size=3,
)


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """Pods and workloads with annotations."""
    kind = draw(st.sampled_from(["Pod", "Deployment", "CronJob"]))
    metadata: dict[str, Any] = {}
    if annotations := draw(_ANNOTATIONS):
        metadata["annotations"] = annotations
    if draw(st.booleans()):
        metadata["labels"] = {"app": "web"}
    spec: dict[str, Any] = {"containers": [{"name": "app", "image": "busybox"}]}
    if draw(st.booleans()):
        spec["runtimeClassName"] = draw(st.sampled_from(["untrusted", "other", None]))
    template = {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}
    named = {"name": "web"}
    if kind == "Pod":
        return {
            "apiVersion": "v1", "kind": kind, "metadata": named | metadata, "spec": spec,
        }  # fmt: skip
    if kind == "CronJob":
        return {
            "apiVersion": "batch/v1", "kind": kind, "metadata": named,
            "spec": {"jobTemplate": {"spec": {"template": template}}},
        }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": kind, "metadata": named, "spec": {"template": template},
    }  # fmt: skip


_POLICIES: list[dict[str, Any]] = [
    {
        "apiVersion": "policy/v1beta1",
        "kind": "PodSecurityPolicy",
        "metadata": {"name": "restricted"},
        "spec": {"runtimeClass": {"allowedRuntimeClassNames": ["gvisor"]}},
    },
    {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "sandbox"},
        "spec": {
            "validationFailureAction": "Enforce",
            "rules": [
                {
                    "name": "allowed",
                    "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["a"]}}]},
                    "preconditions": {"all": [{"key": "{{request.operation}}", "value": "CREATE"}]},
                    "validate": {"pattern": {"spec": {"=(runtimeClassName)": "gvisor | kata"}}},
                },
                {
                    "name": "default",
                    "match": {"resources": {"kinds": ["Pod"]}},
                    "mutate": {"patchStrategicMerge": {"spec": {"runtimeClassName": "gvisor"}}},
                },
            ],
        },
    },
    {
        "apiVersion": "mutations.gatekeeper.sh/v1",
        "kind": "Assign",
        "metadata": {"name": "sandbox"},
        "spec": {
            "applyTo": [{"groups": [""], "kinds": ["Pod"], "versions": ["v1"]}],
            "match": {"namespaces": ["a"], "kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]},
            "location": "spec.runtimeClassName",
            "parameters": {"assign": {"value": "gvisor"}, "pathTests": [{"subPath": "spec"}]},
        },
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "a"},
        "roleRef": {"kind": "ClusterRole", "name": "use"},
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "use"},
        "rules": [
            {
                "apiGroups": ["policy"], "resources": ["podsecuritypolicies"], "verbs": ["use"],
                "resourceNames": ["restricted"],
            }
        ],
    },
    {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": "classes"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "Classes"}}},
            "targets": [{"rego": "input.review.object.spec.runtimeClassName"}],
        },
    },
    {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": "Classes",
        "metadata": {"name": "sandboxes"},
        "spec": {
            "match": {"excludedNamespaces": ["kube-system"]},
            "parameters": {"allowedRuntimeClasses": ["gvisor"]},
        },
    },
]  # fmt: skip
_CONFIGURATIONS: list[dict[str, Any]] = [
    {"services": {"web": {"image": "x", "runtime": "runsc"}, "db": {"isolation": "hyperv"}}},
    {
        "default-runtime": "runsc",
        "runtimes": {
            "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=kvm"]},
            "kata": {"runtimeType": "io.containerd.kata.v2", "options": {"ConfigPath": "/k"}},
        },
    },
]


def policies() -> st.SearchStrategy[dict[str, Any]]:
    """Policies of other engines, and what belongs to them."""
    return st.sampled_from(_POLICIES)


def sound() -> st.SearchStrategy[dict[str, Any]]:
    """Documents as people write them."""
    return st.one_of(classes(), workloads(), policies())


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """Documents with a value of any type in the place of one of theirs."""
    document = draw(st.one_of(sound(), st.sampled_from(_CONFIGURATIONS)))
    value: dict[str, Any] = _broken(draw, document)
    return value


def _broken(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 8)):
        key = draw(st.sampled_from(sorted(value)))
        return value | {key: _broken(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 8)):
        return [_broken(draw, value[0]), *value[1:]]
    return draw(_VALUES)

"""RuntimeClasses: validation, warnings, every version, columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.kind import ALL_VERBS, Obj, Served
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS, warn_runtime_class
from tests.apiserver.registry.kinds.rows import columns, rows
from tests.apiserver.registry.rules import BASES, CODEC, changed, decoded, update_complaint, updates


def test_classes_are_served_in_every_version_they_ever_had() -> None:
    kind = RUNTIME_CLASS
    assert [served.api_version for served in kind.served] == [
        "node.k8s.io/v1", "node.k8s.io/v1beta1", "node.k8s.io/v1alpha1",
    ]  # fmt: skip
    assert kind.subresources == {}
    assert kind.selectable == ()
    assert kind.verbs == ALL_VERBS


def test_a_class_gets_no_default() -> None:
    assert decoded(RUNTIME_CLASS, changed("RuntimeClass")) == BASES["RuntimeClass"]


test_update = updates("RuntimeClass", cases=[
    ({}, {"handler": "kata"},
     'handler: Invalid value: "kata": field is immutable'),
    ({}, {"overhead": {"podFixed": {"cpu": "1"}}}, ""),
    ({}, {"scheduling": {"nodeSelector": {"a": "b"}}}, ""),
])  # fmt: skip


def test_an_update_to_an_invalid_handler_fails_twice() -> None:
    error = update_complaint(
        "RuntimeClass", changed("RuntimeClass", {"handler": "A"}), changed("RuntimeClass")
    )
    assert error is not None
    assert error.startswith('[handler: Invalid value: "A": a lowercase RFC 1123 label')
    assert error.endswith('handler: Invalid value: "A": field is immutable]')


def test_a_class_with_deprecated_labels() -> None:
    runtime_class = {
        "metadata": {"name": "r"},
        "handler": "h",
        "scheduling": {"nodeSelector": {"beta.kubernetes.io/arch": "amd64", "ok": "1"}},
    }
    assert warn_runtime_class(runtime_class, None) == [
        'scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/arch" instead'
    ]


V1, V1BETA1, V1ALPHA1 = RUNTIME_CLASS.served
NAMES = st.from_regex(r"[a-z][-a-z0-9]{0,6}[a-z0-9]", fullmatch=True)
LABELS = st.dictionaries(NAMES, NAMES, min_size=1, max_size=2)
TOLERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": NAMES,
        "operator": st.sampled_from(["Equal", "Exists"]),
        "value": NAMES,
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        "tolerationSeconds": st.integers(0, 100),
    },
)
OVERHEAD = st.fixed_dictionaries(
    {},
    optional={
        "podFixed": st.dictionaries(
            st.sampled_from(["cpu", "memory"]), st.sampled_from(["100m", "1Gi", "2"]), min_size=1
        )
    },
)
SCHEDULING = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": LABELS,
        "tolerations": st.lists(TOLERATIONS, min_size=1, max_size=3),
    },
)
CLASSES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": NAMES}, optional={"labels": LABELS}),
        "handler": NAMES,
    },
    optional={"overhead": OVERHEAD, "scheduling": SCHEDULING},
)


def decode(served: Served, obj: Obj) -> Obj:
    body = msgspec.json.encode(obj)
    return CODEC.decode(RUNTIME_CLASS, served, body, Media.JSON).obj


@given(CLASSES)
def test_no_version_loses_anything(stored: Obj) -> None:
    assert decode(V1, stored) == stored
    for served in (V1BETA1, V1ALPHA1):
        assert decode(served, CODEC.from_storage(served, stored)) == stored


FULL: dict[str, Any] = {
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
}


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        (FULL, FULL),
        ({"overhead": {}, "scheduling": {}}, {"overhead": {}, "scheduling": {}}),
        (
            {"overhead": {"podFixed": {}}, "scheduling": {"nodeSelector": {}, "tolerations": []}},
            {"overhead": {}, "scheduling": {}},
        ),
        ({"overhead": None, "scheduling": None}, {}),
        ({}, {}),
        ({"overhead": {"podFixed": {"cpu": "0.1", "memory": "1024Ki"}}},
         {"overhead": {"podFixed": {"cpu": "100m", "memory": "1Mi"}}}),
    ],
)  # fmt: skip
def test_the_nested_form_is_the_flat_one(rest: Obj, kept: Obj) -> None:
    nested = {"metadata": {"name": "r"}, "spec": {"runtimeHandler": "h", **rest}}
    flat = {"metadata": {"name": "r"}, "handler": "h", **kept}
    assert decode(V1ALPHA1, nested) == flat
    assert decode(V1BETA1, {"metadata": {"name": "r"}, "handler": "h", **rest}) == flat
    shown = CODEC.from_storage(V1ALPHA1, flat)
    assert shown == {"metadata": {"name": "r"}, "spec": {"runtimeHandler": "h", **kept}}


def test_class_without_spec_lacks_its_required_handler() -> None:
    stored = decode(V1ALPHA1, {"metadata": {"name": "r"}})
    assert [str(error) for error in RUNTIME_CLASS.strategy.validate(stored)] == [
        "handler: Required value"
    ]


def test_old_versions_come_with_a_warning() -> None:
    assert V1.warning == ""
    assert V1BETA1.warning == (
        "node.k8s.io/v1beta1 RuntimeClass is deprecated in v1.22+, unavailable in v1.25+"
    )
    assert "use node.k8s.io/v1 RuntimeClass" in V1ALPHA1.warning


test_row = rows("RuntimeClass", cases=[
    ({"handler": "runsc"}, ["x", "runsc", "90s"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("RuntimeClass") == "Name Handler Age |"

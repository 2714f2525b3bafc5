from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.runtime_group import RuntimeClass
from moorage.runtimeclass import class_errors, class_update_errors, class_warnings

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def errors_of(obj: dict[str, Any]) -> list[str]:
    return [str(error) for error in class_errors(msgspec.convert(obj, RuntimeClass))]


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("runc", []),
        ("a" * 63, []),
        ("", ["handler: Required value"]),
        ("Foo_Bar", [f'handler: Invalid value: "Foo_Bar": {LABEL}']),
        ("foo.bar", ['handler: Invalid value: "foo.bar": must not contain dots']),
        (
            "a" * 64,
            [f'handler: Invalid value: "{"a" * 64}": must be no more than 63 characters'],
        ),
        (
            "A" * 64,
            [
                f'handler: Invalid value: "{"A" * 64}": must be no more than 63 characters',
                f'handler: Invalid value: "{"A" * 64}": {LABEL}',
            ],
        ),
    ],
)
def test_a_handler_is_a_dns_label(handler: str, expected: list[str]) -> None:
    assert errors_of({"handler": handler}) == expected


OVERHEAD = [
    ({"cpu": "0"}, []),
    ({"memory": "100m"}, []),
    ({"foo.kubernetes.io/x": "1"}, []),
    (
        {"pods": "1"},
        ['overhead.limits[pods]: Invalid value: "pods": must be a standard resource for '
         "containers"],
    ),
    (
        {"my.org": "1"},
        ['overhead.limits[my.org]: Invalid value: "my.org": must be a standard resource type or '
         "fully qualified",
         'overhead.limits[my.org]: Invalid value: "my.org": must be a standard resource for '
         "containers"],
    ),
    (
        {"requests.example.com/x": "1"},
        ['overhead.limits[requests.example.com/x]: Invalid value: "requests.example.com/x": '
         "doesn't follow extended resource name standard"],
    ),
    (
        {"cpu": "-1"},
        ['overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
    ),
    (
        {"example.com/x": "500m"},
        ['overhead.limits[example.com/x]: Invalid value: "500m": must be an integer'],
    ),
    ({"hugepages-2Mi": "4Mi"}, ["overhead: Forbidden: HugePages require cpu or memory"]),
    (
        {"hugepages-2Mi": "3Mi", "cpu": "1"},
        ['overhead.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer '
         "multiple of hugepages-2Mi"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fixed", "expected"), OVERHEAD)
def test_overhead_obeys_the_rules_of_container_limits(
    fixed: dict[str, str], expected: list[str]
) -> None:
    assert errors_of({"handler": "h", "overhead": {"podFixed": fixed}}) == expected


TOLERATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"operator": "Equal"},
        'scheduling.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when '
        '`key` is empty, which means "match all values and all keys"',
    ),
    (
        {"key": "a", "operator": "Exists", "value": "x"},
        'scheduling.tolerations[0].operator: Invalid value: "x": value must be empty when '
        "`operator` is 'Exists'",
    ),
    (
        {"key": "a", "operator": "Exists", "tolerationSeconds": 1},
        "scheduling.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when "
        "`tolerationSeconds` is set",
    ),
    (
        {"key": "a", "operator": "Exists", "effect": "Foo"},
        'scheduling.tolerations[0].effect: Unsupported value: "Foo": supported values: '
        '"NoSchedule", "PreferNoSchedule", "NoExecute"',
    ),
    (
        {"key": "a", "operator": "In"},
        'scheduling.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", '
        '"Exists"',
    ),
]


@pytest.mark.parametrize(("toleration", "expected"), TOLERATIONS)
def test_tolerations_are_checked(toleration: dict[str, Any], expected: str) -> None:
    assert errors_of({"handler": "h", "scheduling": {"tolerations": [toleration]}}) == [expected]


def test_equal_tolerations_are_duplicates_regardless_of_seconds() -> None:
    exists = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    twice = [exists, exists | {"tolerationSeconds": 10}]
    assert errors_of({"handler": "h", "scheduling": {"tolerations": twice}}) == [
        'scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"",'
        '"Effect":"NoExecute","TolerationSeconds":10}'
    ]


def test_an_omitted_operator_and_equal_are_not_duplicates() -> None:
    pair = [{"key": "a", "value": "b"}, {"key": "a", "operator": "Equal", "value": "b"}]
    assert errors_of({"handler": "h", "scheduling": {"tolerations": pair}}) == []


def test_node_selector_keys_and_values_are_labels() -> None:
    errors = errors_of({"handler": "h", "scheduling": {"nodeSelector": {"a b": "c d"}}})
    assert errors[0].startswith(
        'scheduling.nodeSelector: Invalid value: "a b": name part must consist of'
    )
    assert errors[1].startswith('scheduling.nodeSelector: Invalid value: "c d": a valid label must')


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("runc", []),
        ("kata", ['handler: Invalid value: "kata": field is immutable']),
        ("", ["handler: Required value", 'handler: Invalid value: "": field is immutable']),
    ],
)
def test_the_handler_never_changes(handler: str, expected: list[str]) -> None:
    new, old = RuntimeClass(handler=handler), RuntimeClass(handler="runc")
    assert [str(error) for error in class_update_errors(new, old)] == expected


def test_the_implicit_classs_name_is_reserved() -> None:
    [error] = errors_of({"metadata": {"name": "legacy"}, "handler": "h"})
    assert error.startswith('metadata.name: Invalid value: "legacy": is reserved')


def test_deprecated_node_labels_are_warned_of() -> None:
    selector = {"beta.kubernetes.io/arch": "amd64", "disk": "ssd"}
    runtime_class = msgspec.convert(
        {"handler": "h", "scheduling": {"nodeSelector": selector}}, RuntimeClass
    )
    assert class_warnings(runtime_class) == [
        'scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/arch" instead'
    ]

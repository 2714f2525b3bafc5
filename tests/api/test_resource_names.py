"""Names and amounts of resources, in the words of core validation."""

from __future__ import annotations

import pytest

from moorage.api import quantity
from moorage.api.resource_names import (
    amount_errors,
    container_limits_errors,
    container_resource_name_errors,
    is_extended,
    is_hugepages,
    is_native,
    is_standard_container,
    resource_name_errors,
)

_FORM = "name part must consist of alphanumeric characters"
_STANDARD_TYPE = "must be a standard resource type or fully qualified"
_OF_CONTAINERS = "must be a standard resource for containers"
_EXTENDED = "doesn't follow extended resource name standard"


@pytest.mark.parametrize(
    ("name", "native", "extended", "standard", "pages"),
    [
        ("cpu", True, False, True, False),
        ("ephemeral-storage", True, False, True, False),
        ("hugepages-2Mi", True, False, True, True),
        ("pods", True, False, False, False),
        ("kubernetes.io/x", True, False, False, False),
        ("x.kubernetes.io/y", True, False, False, False),
        ("example.com/gpu", False, True, False, False),
        ("requests.example.com/gpu", False, False, False, False),
        # With the prefix of quotas in front the domain has 254 characters, without it 245.
        (f"{'a' * 241}.com/gpu", False, False, False, False),
        (f"{'a' * 240}.com/gpu", False, True, False, False),
    ],
)
def test_what_a_name_is(
    name: str, native: bool, extended: bool, standard: bool, pages: bool
) -> None:
    result = is_native(name), is_extended(name), is_standard_container(name), is_hugepages(name)
    assert result == (native, extended, standard, pages)


@pytest.mark.parametrize(
    ("name", "anywhere", "of_containers"),
    [
        ("cpu", [], []),
        ("memory", [], []),
        ("ephemeral-storage", [], []),
        ("hugepages-2Mi", [], []),
        ("example.com/gpu", [], []),
        ("kubernetes.io/x", [], []),
        *((name, [], [_OF_CONTAINERS]) for name in (
            "requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu",
            "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services",
            "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims", "storage",
            "requests.storage", "services.nodeports", "services.loadbalancers",
        )),
        ("gpu", [_STANDARD_TYPE], [_STANDARD_TYPE, _OF_CONTAINERS]),
        ("-gpu", [_FORM], [_FORM]),
        ("requests.example.com/gpu", [], [_EXTENDED]),
    ],
)  # fmt: skip
def test_complaints_about_a_name(name: str, anywhere: list[str], of_containers: list[str]) -> None:
    for errors, expected in (
        (resource_name_errors(name, "at"), anywhere),
        (container_resource_name_errors(name, "at"), of_containers),
    ):
        texts = [f'Invalid value: "{name}": {complaint}' for complaint in expected]
        assert [error.field for error in errors] == ["at"] * len(expected)
        assert all(
            error.text.startswith(text) for error, text in zip(errors, texts, strict=True)
        ), errors


@pytest.mark.parametrize(
    ("name", "amount", "complaints"),
    [
        ("cpu", "0", []),
        ("cpu", "500m", []),
        ("cpu", "-1n", ['"-1n": must be greater than or equal to 0']),
        *((name, "500m", ['"500m": must be an integer']) for name in (
            "pods", "services", "replicationcontrollers", "resourcequotas", "secrets",
            "configmaps", "persistentvolumeclaims", "services.nodeports",
            "services.loadbalancers", "example.com/gpu",
        )),
        ("example.com/gpu", "3", []),
        ("hugepages-2Mi", "4Mi", []),
        *(("hugepages-2Mi", amount,
           [f'"{amount}": {amount} is not positive integer multiple of hugepages-2Mi'])
          for amount in ("0", "3Mi", "1Mi")),
        ("hugepages-odd", "3Mi", []),
    ],
)  # fmt: skip
def test_complaints_about_an_amount(name: str, amount: str, complaints: list[str]) -> None:
    errors = amount_errors(name, quantity.parse(amount), "at")
    assert [(error.field, error.text) for error in errors] == [
        ("at", f"Invalid value: {complaint}") for complaint in complaints
    ]


@pytest.mark.parametrize(
    ("limits", "complaints"),
    [
        ({"cpu": "1", "memory": "1Gi"}, []),
        ({"hugepages-2Mi": "2Mi", "cpu": "1"}, []),
        ({"hugepages-2Mi": "2Mi", "memory": "1"}, []),
        ({"hugepages-2Mi": "2Mi"}, [("r", "Forbidden: HugePages require cpu or memory")]),
        (
            {"gpu": "-1"},
            [
                ("r.limits[gpu]", f'Invalid value: "gpu": {_STANDARD_TYPE}'),
                ("r.limits[gpu]", f'Invalid value: "gpu": {_OF_CONTAINERS}'),
                ("r.limits[gpu]", 'Invalid value: "-1": must be greater than or equal to 0'),
            ],
        ),
    ],
)
def test_complaints_about_limits(limits: dict[str, str], complaints: list[tuple[str, str]]) -> None:
    errors = container_limits_errors(limits, "r")
    assert [(error.field, error.text) for error in errors] == complaints

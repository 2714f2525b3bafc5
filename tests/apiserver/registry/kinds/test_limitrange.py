"""LimitRanges."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded

KIND = "LimitRange"
AT = "spec.limits[0]"


def limits(**item: Any) -> dict[str, Any]:
    return {"spec.limits": [{"type": "Container", **item}]}


@pytest.mark.parametrize(
    ("item", "default", "request_"),
    [
        ({}, None, None),
        ({"max": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}),
        ({"min": {"cpu": "1"}}, None, {"cpu": "1"}),
        ({"max": {"cpu": "2"}, "min": {"cpu": "1"}}, {"cpu": "2"}, {"cpu": "2"}),
        ({"default": {"cpu": "3"}, "max": {"cpu": "4", "memory": "1Gi"}},
         {"cpu": "3", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}),
        ({"defaultRequest": {"cpu": "1"}, "default": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "1"}),
    ],
)  # fmt: skip
def test_defaults_of_containers(item: dict[str, Any], default: Any, request_: Any) -> None:
    (result,) = decoded(KINDS[KIND], changed(KIND, limits(**item)))["spec"]["limits"]
    assert result.get("default") == default
    assert result.get("defaultRequest") == request_


def test_other_types_have_no_defaults() -> None:
    item = {"type": "Pod", "max": {"cpu": "2"}}
    (result,) = decoded(KINDS[KIND], changed(KIND, {"spec.limits": [item]}))["spec"]["limits"]
    assert result == item


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"max": {"cpu": "1"}, "min": {"cpu": "1"}}, None),
        ({"type": "x.io/own", "max": {"storage": "1"}}, None),
        ({"type": "Node"},
         f'{AT}.type: Invalid value: "Node": must be a standard limit type or fully qualified'),
        ({"type": "a b"}, f'{AT}.type: Invalid value: "a b": name part must consist of'),
        ({"max": {"pods": "1"}},
         f'{AT}.max[pods]: Invalid value: "pods": must be a standard resource for containers'),
        ({"type": "Pod", "default": {"cpu": "1"}},
         f"{AT}.default: Forbidden: may not be specified when `type` is 'Pod'"),
        ({"type": "Pod", "defaultRequest": {"cpu": "1"}},
         f"{AT}.defaultRequest: Forbidden: may not be specified when `type` is 'Pod'"),
        ({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}},
         f"{AT}.limits: Required value: either minimum or maximum storage value is required, but "
         "neither was provided"),
        ({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}, None),
        ({"min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1"},
          "defaultRequest": {"cpu": "1"}},
         f'{AT}.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'),
        ({"min": {"cpu": "2"}, "default": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}},
         f'{AT}.defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default '
         "request value 1"),
        ({"max": {"cpu": "2"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}},
         f'{AT}.defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than '
         "max value 2"),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}},
         f'{AT}.defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than '
         "default limit value 2"),
        ({"min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
         f'{AT}.default[cpu]: Invalid value: "2": min value 2 is greater than default value 1'),
        ({"max": {"cpu": "2"}, "default": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}},
         f'{AT}.default[cpu]: Invalid value: "2": default value 3 is greater than max value 2'),
        ({"maxLimitRequestRatio": {"cpu": "500m"}},
         f'{AT}.maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'),
        ({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"},
          "maxLimitRequestRatio": {"cpu": "3"}},
         f'{AT}.maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = '
         "2.000000"),
        ({"type": "Pod", "min": {"cpu": "0"}, "max": {"cpu": "2"},
          "maxLimitRequestRatio": {"cpu": "3"}}, None),
        ({"default": {"x.io/gpu": "2"}, "defaultRequest": {"x.io/gpu": "1"}},
         f'{AT}.defaultRequest[x.io/gpu]: Invalid value: "1": default value 2 must equal to '
         "defaultRequest value 1 in x.io/gpu"),
    ],
)  # fmt: skip
def test_rules(item: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, limits(**item)))
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert says in refusal


def test_a_type_stands_once() -> None:
    twice = [{"type": "Pod", "max": {"cpu": "1"}}] * 2
    refusal = str(complaint(KIND, changed(KIND, {"spec.limits": twice})))
    assert refusal.endswith('spec.limits[1].type: Duplicate value: "Pod"')

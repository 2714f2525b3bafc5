"""ResourceSlices."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "ResourceSlice"
DEVICE = "spec.devices[0]"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
ONE_NODE_FIELD = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
VALUES = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
TERM = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
TAINT = {"key": "k", "effect": "NoExecute"}
COUNTERS = {"counters": {"c": {"value": "1"}}}


def _many(count: int) -> list[Obj]:
    return [{"name": f"d{index}"} for index in range(count)]


def _creation(sets: dict[str, Any], *drops: str) -> str | None:
    error = complaint(KIND, changed(KIND, sets, *drops))
    return error and error.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"spec.driver": ""}, "spec.driver: Required value"),
        ({"spec.driver": "d_"}, f'spec.driver: Invalid value: "d_": {SUBDOMAIN}'),
        ({"spec.driver": "D" * 64}, "spec.driver: Too long: may not be more than 63 bytes"),
        ({"spec.pool.name": ""}, "spec.pool.name: Required value"),
        ({"spec.pool.name": "p/Q"}, f'spec.pool.name: Invalid value: "Q": {SUBDOMAIN}'),
        ({"spec.pool.name": "/".join(["a" * 84] * 3)},
         "spec.pool.name: Too long: may not be more than 253 bytes"),
        ({"spec.pool.resourceSliceCount": 0},
         "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
        ({"spec.pool.generation": -1},
         "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"),
        ({"spec.nodeName": "N_"}, f'spec.nodeName: Invalid value: "N_": {SUBDOMAIN}'),
        ({"spec.allNodes": True},
         f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_SELECTION}, but multiple '
         "fields are set"),
        ({"spec.allNodes": False},
         "spec.allNodes: Invalid value: false: must be either unset or set to true"),
        ({"spec.perDeviceNodeSelection": False},
         "spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true"),
        ({"spec.sharedCounters": [{"name": "s", **COUNTERS}]},
         'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'),
        ({"spec.devices": _many(129)}, "spec.devices: Too many: 129: must have at most 128 items"),
        ({"spec.devices": [*_many(64), {"name": "x", "taints": [TAINT]}]},
         "spec.devices: Too many: 65: must have at most 64 items"),
        ({"spec.devices": _many(1) * 2}, 'spec.devices[1]: Duplicate value: "d0"'),
        ({f"{DEVICE}.name": "A"}, f'{DEVICE}.name: Invalid value: "A": {LABEL}'),
        ({f"{DEVICE}.attributes": {f"a{index}": {"int": 1} for index in range(33)}},
         f"{DEVICE}: Invalid value: 33: the total number of attributes and capacities must not "
         "exceed 32"),
        ({f"{DEVICE}.attributes": {"1": {"int": 1}}},
         f'{DEVICE}.attributes: Invalid value: "1": {IDENTIFIER}'),
        ({f"{DEVICE}.attributes": {"a_/" + "b" * 33: {"int": 1}}},
         f'[{DEVICE}.attributes: Invalid value: "a_": {SUBDOMAIN}, {DEVICE}.attributes: Too long: '
         "may not be more than 32 bytes]"),
        ({f"{DEVICE}.attributes": {"/": {"int": 1}}},
         f'[{DEVICE}.attributes: Invalid value: "": the domain must not be empty, '
         f'{DEVICE}.attributes: Invalid value: "": the name must not be empty]'),
        ({f"{DEVICE}.attributes": {"a": {}}},
         f'{DEVICE}.attributes[a]: Invalid value: "": must specify one of: {VALUES}'),
        ({f"{DEVICE}.attributes": {"a": {"int": 1, "bool": False}}},
         f'{DEVICE}.attributes[a]: Invalid value: "{{int, bool}}": must specify exactly one of: '
         f"{VALUES}"),
        ({f"{DEVICE}.attributes": {"a": {"string": "x" * 65}}},
         f"{DEVICE}.attributes[a].string: Too long: may not be more than 64 bytes"),
        ({f"{DEVICE}.attributes": {"a": {"version": "1.2"}}},
         f'{DEVICE}.attributes[a].version: Invalid value: "1.2": must be a string compatible with '
         "semver.org spec 2.0.0"),
        ({f"{DEVICE}.attributes": {"a": {"version": "1.2.3-rc.1+b.5"}}}, None),
        ({f"{DEVICE}.attributes": {"a" * 97: {}}},
         f"[{DEVICE}.attributes: Too long: may not be more than 32 bytes, "
         f'{DEVICE}.attributes[{"a" * 47}...{"a" * 46}]: Invalid value: "": must specify one of: '
         f"{VALUES}]"),
        ({f"{DEVICE}.taints": [TAINT] * 17},
         f"{DEVICE}.taints: Too many: 17: must have at most 16 items"),
        ({f"{DEVICE}.taints": [{"key": "a b"}]},
         f'[{DEVICE}.taints[0].key: Invalid value: "a b": {KEY}, {DEVICE}.taints[0].effect: '
         "Required value]"),
        ({f"{DEVICE}.taints": [{"key": "k", "effect": "X"}]},
         f'{DEVICE}.taints[0].effect: Unsupported value: "X": supported values: "NoExecute", '
         '"NoSchedule", "None"'),
        ({f"{DEVICE}.consumesCounters": [{"counterSet": "a", **COUNTERS}] * 2},
         f'{DEVICE}.consumesCounters[1]: Duplicate value: {{"counterSet":"a","counters":'
         '{"c":{"value":"1"}}}'),
        ({f"{DEVICE}.consumesCounters": [{"counterSet": str(n)} for n in range(3)]},
         f"{DEVICE}.consumesCounters: Too many: 3: must have at most 2 items"),
        ({f"{DEVICE}.consumesCounters": [{}]},
         f"[{DEVICE}.consumesCounters[0].counterSet: Required value, "
         f"{DEVICE}.consumesCounters[0].counters: Required value]"),
        ({f"{DEVICE}.nodeName": "n"},
         f"{DEVICE}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be "
         "set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"),
        ({f"{DEVICE}.bindingConditions": ["a"]},
         f"{DEVICE}.bindingFailureConditions: Invalid value: null: bindingFailureConditions are "
         "required to use bindingConditions"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    assert _creation(sets) == says


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, f"spec: Required value: {ONE_SELECTION}"),
        ({"spec.nodeSelector": {"nodeSelectorTerms": [TERM]}}, None),
        ({"spec.nodeSelector": {"nodeSelectorTerms": [TERM, TERM]}},
         'spec.nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"k",'
         '"Operator":"Exists","Values":null}],"MatchFields":null},{"MatchExpressions":[{"Key":"k",'
         '"Operator":"Exists","Values":null}],"MatchFields":null}]: must have exactly one node '
         "selector term"),
        ({"spec.perDeviceNodeSelection": True}, f"{DEVICE}: Required value: {ONE_NODE_FIELD}"),
        ({"spec.perDeviceNodeSelection": True, f"{DEVICE}.nodeName": "n"}, None),
        ({"spec.perDeviceNodeSelection": True, f"{DEVICE}.nodeName": "N_"},
         f'{DEVICE}.nodeName: Invalid value: "N_": {SUBDOMAIN}'),
        ({"spec.perDeviceNodeSelection": True, f"{DEVICE}.nodeName": "n",
          f"{DEVICE}.allNodes": True},
         f'{DEVICE}: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_NODE_FIELD}'),
        ({"spec.perDeviceNodeSelection": True, f"{DEVICE}.nodeName": "n",
          f"{DEVICE}.allNodes": False},
         f"{DEVICE}.allNodes: Invalid value: false: must be either unset or set to true"),
        ({"spec.perDeviceNodeSelection": True,
          f"{DEVICE}.nodeSelector": {"nodeSelectorTerms": []}},
         f"{DEVICE}.nodeSelector.nodeSelectorTerms: Required value: must have at least one node "
         "selector term"),
    ],
)  # fmt: skip
def test_nodes(sets: dict[str, Any], says: str | None) -> None:
    assert _creation(sets, "spec.nodeName") == says


@pytest.mark.parametrize(
    ("counter_sets", "says"),
    [
        ([{"name": "s", **COUNTERS}], None),
        ([{}], "[spec.sharedCounters[0].name: Required value, spec.sharedCounters[0].counters: "
         "Required value]"),
        ([{"name": "S", **COUNTERS}], f'spec.sharedCounters[0].name: Invalid value: "S": {LABEL}'),
        ([{"name": "s", "counters": {"C": {"value": "1"}}}],
         f'spec.sharedCounters[0].counters: Invalid value: "C": {LABEL}'),
        ([{"name": "s", "counters": {f"c{n}": {"value": "1"} for n in range(33)}}],
         "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items"),
        ([{"name": "s", **COUNTERS}] * 2,
         'spec.sharedCounters[1]: Duplicate value: {"name":"s","counters":{"c":{"value":"1"}}}'),
        ([{"name": f"s{n}", **COUNTERS} for n in range(9)],
         "spec.sharedCounters: Too many: 9: must have at most 8 items"),
    ],
)  # fmt: skip
def test_shared_counters(counter_sets: list[Obj], says: str | None) -> None:
    assert _creation({"spec.sharedCounters": counter_sets}, "spec.devices") == says


POLICY = f"{DEVICE}.capacity[m].requestPolicy"
RANGE = f"{POLICY}.validRange"
STEP = "value is not a multiple of a given step"


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({}, None),
        ({"default": "1", "validValues": ["1", "2"]}, None),
        ({"validValues": ["1"]},
         f"{POLICY}.default: Required value: required when validValues is defined"),
        ({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
         f'{POLICY}: Forbidden: exactly one policy can be specified, cannot specify "validValues" '
         'and "validRange" at the same time'),
        ({"default": "1", "validValues": ["2", "1", "1", "20"]},
         f'[{POLICY}.validValues[1]: Invalid value: "1": values must be sorted in ascending order, '
         f'{POLICY}.validValues[3]: Invalid value: "20": option is larger than capacity value: 10, '
         f'{POLICY}.validValues[2]: Duplicate value: "1"]'),
        ({"default": "500m", "validValues": ["500m", "500m"]},
         f'{POLICY}.validValues[1]: Duplicate value: "0.500"'),
        ({"default": "3", "validValues": ["1"]},
         f'{POLICY}.validValues: Invalid value: "3": default value is not valid according to the '
         "requestPolicy"),
        ({"default": "1", "validValues": [str(n) for n in range(11)]},
         f"[{POLICY}.validValues: Too many: 11: must have at most 10 items, "
         f'{POLICY}.validValues: Invalid value: "1": default value is not valid according to the '
         "requestPolicy]"),
        ({"validRange": {"min": "1"}},
         f"{POLICY}.default: Required value: required when validRange is defined"),
        ({"default": "1", "validRange": {"max": "2"}},
         f"{RANGE}.min: Required value: required when validRange is defined"),
        ({"default": "4", "validRange": {"min": "2", "max": "8", "step": "2"}}, None),
        ({"default": "1", "validRange": {"min": "11"}},
         f'[{RANGE}.min: Invalid value: "11": min is larger than capacity value: 10, '
         f'{RANGE}.default: Invalid value: "1": default is less than min: 11]'),
        ({"default": "12", "validRange": {"min": "2", "max": "11"}},
         f'[{RANGE}.max: Invalid value: "11": max is larger than capacity value: 10, '
         f'{RANGE}.default: Invalid value: "12": default is more than max: 11]'),
        ({"default": "3", "validRange": {"min": "3", "max": "2"}},
         f'[{RANGE}.max: Invalid value: "3": min is larger than max: 2, '
         f'{RANGE}.default: Invalid value: "3": default is more than max: 2]'),
        ({"default": "2", "validRange": {"min": "2", "step": "0"}},
         f'{RANGE}.step: Invalid value: "0": must be greater than zero'),
        ({"default": "2", "validRange": {"min": "2", "step": "9"}},
         f'{RANGE}.step: Invalid value: "9": one step 11 is larger than capacity value: 10'),
        ({"default": "3", "validRange": {"min": "2", "max": "5", "step": "2"}},
         f'[{RANGE}.step: Invalid value: "3": {STEP} (2) from (2), '
         f'{RANGE}.step: Invalid value: "5": {STEP} (2) from (2)]'),
        ({"default": "2", "validRange": {"min": "-2", "step": "2"}},
         f'{RANGE}.min: Invalid value: "-2": must be greater than or equal to 0'),
        ({"default": "1500m", "validRange": {"min": "500m", "step": "500m"}}, None),
        ({"default": "1u", "validRange": {"min": "0"}},
         f'{RANGE}.default: Invalid value: "1u": value cannot be represented as a milli value'),
    ],
)  # fmt: skip
def test_request_policies(policy: Obj, says: str | None) -> None:
    capacity = {"m": {"value": "10", "requestPolicy": policy}}
    sets = {f"{DEVICE}.allowMultipleAllocations": True, f"{DEVICE}.capacity": capacity}
    assert _creation(sets) == says


def test_only_shared_devices_have_request_policies() -> None:
    policy = {"default": "1", "validValues": ["1"]}
    new = changed(KIND, {f"{DEVICE}.capacity": {"m": {"value": "1", "requestPolicy": policy}}})
    says = f"{POLICY}: Forbidden: allowMultipleAllocations must be true"
    assert update_complaint(KIND, new, changed(KIND)) == says
    assert update_complaint(KIND, new, new) is None


def test_taints_that_do_not_change_stay_legal() -> None:
    new = changed(KIND, {f"{DEVICE}.taints": [{"key": "k", "effect": "X"}]})
    assert update_complaint(KIND, new, changed(KIND)) is not None
    assert update_complaint(KIND, new, new) is None


@pytest.mark.parametrize(
    ("path", "value"), [("pool.name", "q"), ("driver", "e"), ("nodeName", "m")]
)
def test_immutable_fields(path: str, value: str) -> None:
    new = changed(KIND, {f"spec.{path}": value})
    assert update_complaint(KIND, new, changed(KIND)) == (
        f'spec.{path}: Invalid value: "{value}": field is immutable'
    )


def test_new_taints_are_dated() -> None:
    kind = KINDS[KIND]
    created, added = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
    taints = [TAINT, {**TAINT, "timeAdded": added}]
    obj = decoded(kind, changed(KIND, {f"{DEVICE}.taints": taints}))
    obj["metadata"]["creationTimestamp"] = created
    kind.strategy.prepare_create(obj)
    assert [taint["timeAdded"] for taint in obj["spec"]["devices"][0]["taints"]] == [created, added]


def test_fields_of_disabled_features_are_dropped_unless_they_are_in_use() -> None:
    kind = KINDS[KIND]
    consumption = {"counterSet": "s", **COUNTERS}
    plain = changed(
        KIND,
        {f"{DEVICE}.attributes": {"a": {"int": 1}}, f"{DEVICE}.consumesCounters": [consumption]},
    )
    full = changed(
        KIND,
        {
            "spec.partitionTypeAttribute": "d/a",
            "spec.skipNodeOperations": ["*"],
            f"{DEVICE}.attributes": {"a": {"int": 1, "strings": ["x"]}},
            f"{DEVICE}.consumesCounters": [{**consumption, "compatibilityGroups": ["g"]}],
            f"{DEVICE}.nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
        },
    )
    new, used = decoded(kind, full), decoded(kind, full)
    kind.strategy.prepare_update(new, used)
    assert new == used
    kind.strategy.prepare_update(new, decoded(kind, plain))
    assert new == decoded(kind, plain)
    kind.strategy.prepare_create(used)
    assert used == decoded(kind, plain)


def test_a_driver_in_upper_case_is_warned_about() -> None:
    warn = KINDS[KIND].strategy.warn
    assert warn(changed(KIND), None) == []
    assert warn(changed(KIND, {"spec.driver": "D"}), None) == [
        'spec.driver: driver names should be lowercase; "D" contains uppercase characters'
    ]


def test_table() -> None:
    assert columns(KIND) == "Name Node Driver Pool Age |"
    spec = changed(KIND)["spec"]
    assert row(KIND, {"spec": spec}) == ["x", "n", "d.example.com", "p", "90s"]
    assert row(KIND, {}) == ["x", "", "", "", "90s"]

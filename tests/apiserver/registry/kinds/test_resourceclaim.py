"""ResourceClaims."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "ResourceClaim"
CLAIM = "spec.devices"
EXACT = f"{CLAIM}.requests[0].exactly"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN = r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is {_SUBDOMAIN}"
)
CASELESS = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'Example.com', regex used for validation is "
    f"{_SUBDOMAIN}"
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
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
UUID = "must be a lowercase UUID in 8-4-4-4-12 format"
SHARE = "11111111-2222-3333-4444-555555555555"

CREATIONS: list[tuple[dict[str, Any], str | None]] = [
    ({f"{CLAIM}.requests[0].name": "A"},
     f'{CLAIM}.requests[0].name: Invalid value: "A": {LABEL}'),
    ({f"{CLAIM}.requests": [{"name": "a"}]},
     f"{CLAIM}.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is "
     "required"),
    ({f"{CLAIM}.requests[0].firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
     f"{CLAIM}.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is "
     "required, but multiple fields are set"),
    ({f"{CLAIM}.requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}] * 2},
     f'{CLAIM}.requests[1]: Duplicate value: {{"name":"r","exactly":{{"deviceClassName":"g",'
     '"allocationMode":"ExactCount","count":1}}'),
    ({f"{CLAIM}.requests": [{"name": "r"}] * 33},
     f"{CLAIM}.requests: Too many: 33: must have at most 32 items"),
    # Handwritten rules come before declared ones.
    ({f"{CLAIM}.requests": [{"name": "a", "firstAvailable": [
        {"name": "b", "deviceClassName": ""}, {"name": "C", "deviceClassName": "c_"}]}]},
     f'[{CLAIM}.requests[0].firstAvailable[1].name: Invalid value: "C": {LABEL}, '
     f"{CLAIM}.requests[0].firstAvailable[0].deviceClassName: Required value, "
     f'{CLAIM}.requests[0].firstAvailable[1].deviceClassName: Invalid value: "c_": {SUBDOMAIN}]'),
    ({f"{CLAIM}.requests": [{"name": "a", "firstAvailable": [
        {"name": str(index), "deviceClassName": "c"} for index in range(9)]}]},
     f"{CLAIM}.requests[0].firstAvailable: Too many: 9: must have at most 8 items"),
    ({EXACT: {}}, f"{EXACT}.deviceClassName: Required value"),
    ({f"{EXACT}.deviceClassName": "c_"},
     f'{EXACT}.deviceClassName: Invalid value: "c_": {SUBDOMAIN}'),
    ({f"{EXACT}.allocationMode": "X"},
     f'{EXACT}.allocationMode: Unsupported value: "X": supported values: "All", "ExactCount"'),
    ({f"{EXACT}.allocationMode": "All", f"{EXACT}.count": 2},
     f"{EXACT}.count: Invalid value: 2: must not be specified when allocationMode is 'All'"),
    ({f"{EXACT}.count": -1}, f"{EXACT}.count: Invalid value: -1: must be greater than zero"),
    ({f"{EXACT}.selectors": [{}]}, f"{EXACT}.selectors[0].cel: Required value"),
    ({f"{EXACT}.selectors": [{"cel": {"expression": "x" * 10241}}]},
     f"{EXACT}.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"),
    ({f"{EXACT}.selectors": [{"cel": {"expression": "x"}}] * 33},
     f"{EXACT}.selectors: Too many: 33: must have at most 32 items"),
    ({f"{EXACT}.tolerations": [{"key": "a b", "operator": "Exists"}]},
     f'{EXACT}.tolerations[0].key: Invalid value: "a b": {KEY}'),
    ({f"{EXACT}.tolerations": [{"operator": "Exists", "value": "v"}]},
     f'{EXACT}.tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`'),
    ({f"{EXACT}.tolerations": [{"value": "a b"}]},
     f'{EXACT}.tolerations[0].value: Invalid value: "a b": {VALUE}'),
    ({f"{EXACT}.tolerations": [{"operator": "X"}]},
     f'{EXACT}.tolerations[0].operator: Unsupported value: "X": supported values: "Equal", '
     '"Exists"'),
    ({f"{EXACT}.tolerations": [{"effect": "X"}]},
     f'{EXACT}.tolerations[0].effect: Unsupported value: "X": supported values: "NoExecute", '
     '"NoSchedule", "None"'),
    ({f"{CLAIM}.constraints": [{}]},
     f'{CLAIM}.constraints[0]: Required value: exactly one of "matchAttribute" or '
     '"distinctAttribute" is required, but multiple fields are set'),
    ({f"{CLAIM}.constraints": [{"requests": ["r", "r", "x", "a/b/c"], "matchAttribute": "d/a"}]},
     f'[{CLAIM}.constraints[0].requests[2]: Invalid value: "x": {REFERENCE}, '
     f'{CLAIM}.constraints[0].requests[3]: Invalid value: "a/b/c": {REFERENCE}, '
     f'{CLAIM}.constraints[0].requests[1]: Duplicate value: "r"]'),
    ({f"{CLAIM}.constraints": [{"matchAttribute": "x"}]},
     f'{CLAIM}.constraints[0].matchAttribute: Invalid value: "x": a fully qualified name must be '
     "a domain and a name separated by a slash"),
    ({f"{CLAIM}.constraints": [{"matchAttribute": "A/" + "x" * 33}]},
     f'[{CLAIM}.constraints[0].matchAttribute: Invalid value: "A": prefix: {SUBDOMAIN}, '
     f"{CLAIM}.constraints[0].matchAttribute: Too long: may not be more than 32 bytes]"),
    ({f"{CLAIM}.constraints": [{"distinctAttribute": "/1"}]},
     f'[{CLAIM}.constraints[0].distinctAttribute: Invalid value: "": prefix must not be empty, '
     f'{CLAIM}.constraints[0].distinctAttribute: Invalid value: "1": {IDENTIFIER}]'),
    ({f"{CLAIM}.constraints": [{"distinctAttribute": "x" * 64 + "/"}]},
     f"[{CLAIM}.constraints[0].distinctAttribute: Too long: may not be more than 63 bytes, "
     f'{CLAIM}.constraints[0].distinctAttribute: Invalid value: "": name must not be empty]'),
    ({f"{CLAIM}.constraints": [{"matchAttribute": "a/b/c"}]}, None),
    ({f"{CLAIM}.config": [{}]}, f"{CLAIM}.config[0].opaque: Required value"),
    ({f"{CLAIM}.config": [{"opaque": {"parameters": {}}}]},
     f"{CLAIM}.config[0].opaque.driver: Required value"),
    ({f"{CLAIM}.config": [{"opaque": {"driver": "d_", "parameters": {}}}]},
     f'{CLAIM}.config[0].opaque.driver: Invalid value: "d_": {CASELESS}'),
    ({f"{CLAIM}.config": [{"opaque": {"driver": "d" * 64, "parameters": {}}}]},
     f"{CLAIM}.config[0].opaque.driver: Too long: may not be more than 63 characters"),
    ({f"{CLAIM}.config": [{"opaque": {"driver": "D", "parameters": 3}}]},
     f'{CLAIM}.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid '
     "JSON object"),
    ({f"{CLAIM}.config": [{"opaque": {"driver": "d", "parameters": {"a": "x" * 10240}}}]},
     f"{CLAIM}.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"),
    ({f"{CLAIM}.config": [{"requests": ["x"], "opaque": {"driver": "d"}}]},
     f'{CLAIM}.config[0].requests[0]: Invalid value: "x": {REFERENCE}'),
    ({CLAIM: {}}, None),
]  # fmt: skip


@pytest.mark.parametrize(("sets", "says"), CREATIONS)
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    error = complaint(KIND, changed(KIND, sets))
    assert (error and error.partition(" is invalid: ")[2]) == says


def test_a_constraint_can_name_an_alternative() -> None:
    alternatives = [{"name": "a", "deviceClassName": "c"}]
    devices = {
        "requests": [{"name": "r", "firstAvailable": alternatives}],
        "constraints": [{"requests": ["r/a"], "matchAttribute": "d.example.com/x"}],
    }
    assert complaint(KIND, changed(KIND, {CLAIM: devices})) is None


def test_defaults() -> None:
    obj = changed(
        KIND,
        {
            f"{EXACT}.tolerations": [{"key": "k"}],
            f"{CLAIM}.requests[1]": {
                "name": "s",
                "firstAvailable": [{"name": "a", "deviceClassName": "c", "allocationMode": "All"}],
            },
            f"{CLAIM}.config": [{"opaque": {"driver": "d", "parameters": {}}}],
        },
    )
    claim = decoded(KINDS[KIND], obj)["spec"]["devices"]
    assert claim["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }
    assert "count" not in claim["requests"][1]["firstAvailable"][0]
    assert claim["config"] == [{"opaque": {"driver": "d", "parameters": {}}}]


def test_derived_attributes_are_dropped_unless_they_are_in_use() -> None:
    kind = KINDS[KIND]
    attributes = [{"name": "d/a", "expression": "1"}]
    used = decoded(kind, changed(KIND, {f"{EXACT}.derivedAttributes": attributes}))
    new = decoded(kind, changed(KIND, {f"{EXACT}.derivedAttributes": attributes}))
    kind.strategy.prepare_update(new, used)
    assert new == used
    kind.strategy.prepare_create(new)
    assert new["spec"] == decoded(kind, changed(KIND))["spec"]


def test_the_specification_is_immutable() -> None:
    new = changed(KIND, {f"{EXACT}.count": 2})
    assert update_complaint(KIND, new, changed(KIND)) == (
        "spec: Invalid value: null: field is immutable"
    )
    labelled = changed(KIND, {"metadata.labels": {"a": "b"}})
    assert update_complaint(KIND, labelled, changed(KIND)) is None


RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
ALLOCATED = {"allocation": {"devices": {"results": [RESULT]}}}
RESULTS = "status.allocation.devices.results[0]"
DEVICE = {"driver": "d", "pool": "p", "device": "x", "conditions": []}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}


def _allocation(**fields: Any) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": [{**RESULT, **fields}]}}}


def _report(**fields: Any) -> dict[str, Any]:
    return {**ALLOCATED, "devices": [{**DEVICE, **fields}]}


STATUSES: list[tuple[dict[str, Any], str | None]] = [
    (ALLOCATED, None),
    (_allocation(request="x"), f'{RESULTS}.request: Invalid value: "x": {REFERENCE}'),
    (_allocation(driver=""), f"{RESULTS}.driver: Required value"),
    (_allocation(driver="d_"), f'{RESULTS}.driver: Invalid value: "d_": {CASELESS}'),
    (_allocation(pool=""), f"{RESULTS}.pool: Required value"),
    (_allocation(pool="a//B"),
     f'[{RESULTS}.pool: Invalid value: "a//B": segment 1: must not be empty, {RESULTS}.pool: '
     f'Invalid value: "B": segment 2: {SUBDOMAIN}]'),
    (_allocation(pool="/".join(["a" * 84] * 3)),
     f"{RESULTS}.pool: Too long: may not be more than 253 bytes"),
    (_allocation(device="X"), f'{RESULTS}.device: Invalid value: "X": {LABEL}'),
    (_allocation(shareID="1"), f'{RESULTS}.shareID: Invalid value: "1": {UUID}'),
    (_allocation(tolerations=[{"operator": "X"}]),
     f'{RESULTS}.tolerations[0].operator: Unsupported value: "X": supported values: "Equal", '
     '"Exists"'),
    (_allocation(bindingConditions=["a"]),
     f"{RESULTS}.bindingFailureConditions: Invalid value: null: bindingFailureConditions are "
     "required to use bindingConditions"),
    (_allocation(bindingFailureConditions=["a"]),
     f"{RESULTS}.bindingConditions: Invalid value: null: bindingConditions are required to use "
     "bindingFailureConditions"),
    (_allocation(bindingConditions=["a", "a"], bindingFailureConditions=["b", "b", "a"]),
     f'[{RESULTS}.bindingConditions[1]: Duplicate value: "a", '
     f'{RESULTS}.bindingFailureConditions[1]: Duplicate value: "b", '
     f'{RESULTS}.bindingFailureConditions[2]: Invalid value: "a": bindingFailureConditions must '
     "not overlap with bindingConditions]"),
    (_allocation(bindingConditions=["a b"], bindingFailureConditions=["b"]),
     f'{RESULTS}.bindingConditions[0]: Invalid value: "a b": {KEY}'),
    ({"allocation": {"devices": {"results": [RESULT] * 33}}},
     "status.allocation.devices.results: Too many: 33: must have at most 32 items"),
    ({"allocation": {"devices": {"config": [{"opaque": {"driver": "d"}}]}}},
     "status.allocation.devices.config[0].source: Required value"),
    ({"allocation": {"devices": {"config": [{"source": "X", "opaque": {"driver": "d"}}]}}},
     'status.allocation.devices.config[0].source: Unsupported value: "X": supported values: '
     '"FromClaim", "FromClass"'),
    ({"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}},
     "status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one "
     "node selector term"),
    ({"allocation": {"nodeSelector": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a b"]}]}]}}},
     "status.allocation.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid "
     f'value: "a b": {VALUE}'),
    ({"reservedFor": [CONSUMER]},
     "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"),
    ({**ALLOCATED, "reservedFor": [{}]},
     "[status.reservedFor[0].resource: Required value, status.reservedFor[0].name: Required "
     "value, status.reservedFor[0].uid: Required value]"),
    ({**ALLOCATED, "reservedFor": [CONSUMER, CONSUMER]},
     'status.reservedFor[1]: Duplicate value: {"resource":"pods","name":"p","uid":"u"}'),
    ({**ALLOCATED, "reservedFor": [{**CONSUMER, "uid": str(uid)} for uid in range(257)]},
     "status.reservedFor: Too many: 257: must have at most 256 items"),
    (_report(), None),
    (_report(device="y"),
     'status.devices[0]: Invalid value: {"Driver":"d","Pool":"p","Device":"y","ShareID":""}: must '
     "be an allocated device in the claim"),
    (_report(shareID=SHARE),
     'status.devices[0]: Invalid value: {"Driver":"d","Pool":"p","Device":"x","ShareID":'
     f'"{SHARE}"}}: must be an allocated device in the claim'),
    (_report(data=3),
     'status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object'),
    (_report(networkData={"interfaceName": "x" * 257, "hardwareAddress": "x" * 129}),
     "[status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes, "
     "status.devices[0].networkData.hardwareAddress: Too long: may not be more than 128 bytes]"),
    (_report(networkData={"ips": ["1.2.3.4/24", "fd00::1/64", "::ffff:1.2.3.4"]}),
     'status.devices[0].networkData.ips[2]: Invalid value: "::ffff:1.2.3.4": must be a valid '
     "address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"),
    (_report(networkData={"ips": ["fd00:0::1/64", "::ffff:1.2.3.4/120"]}),
     '[status.devices[0].networkData.ips[0]: Invalid value: "fd00:0::1/64": must be in canonical '
     'form ("fd00::1/64"), status.devices[0].networkData.ips[1]: Invalid value: '
     '"::ffff:1.2.3.4/120": must be in canonical form ("1.2.3.4/24")]'),
]  # fmt: skip


@pytest.mark.parametrize(("status", "says"), STATUSES)
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed(KIND, {"status": status})
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_conditions_of_devices() -> None:
    condition = {
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [{"type": f"t{index}", **condition} for index in range(9)]
    new = changed(KIND, {"status": _report(conditions=conditions)})
    assert update_complaint(KIND, new, changed(KIND), "status") == (
        "status.devices[0].conditions: Too many: 9: must have at most 8 items"
    )


def test_an_allocation_can_be_taken_back_but_not_changed() -> None:
    old = changed(KIND, {"status": ALLOCATED})
    new = changed(KIND, {"status": _allocation(device="Y")})
    assert update_complaint(KIND, new, old, "status") == (
        "status.allocation: Invalid value: null: field cannot be modified once set"
    )
    assert update_complaint(KIND, changed(KIND), old, "status") is None


def test_nothing_reserves_a_claim_that_is_being_deleted() -> None:
    deleted = {"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}
    old = changed(KIND, {**deleted, "status": ALLOCATED})
    new = changed(KIND, {**deleted, "status": {**ALLOCATED, "reservedFor": [CONSUMER]}})
    assert update_complaint(KIND, new, old, "status") == (
        "status.reservedFor: Forbidden: new entries may not be added while "
        "`deallocationRequested` or `deletionTimestamp` are set"
    )
    assert update_complaint(KIND, old, new, "status") is None


def test_a_status_update_drops_reports_on_devices_that_are_free_again() -> None:
    kind = KINDS[KIND]
    old = decoded(kind, changed(KIND, {"status": _report()}))
    new = decoded(kind, changed(KIND, {"status": {"devices": [DEVICE]}, "metadata.labels": {}}))
    kind.strategy.parts["status"].prepare(new, old)
    assert new["status"] == {}


def test_a_status_update_drops_fields_of_disabled_features() -> None:
    kind = KINDS[KIND]
    new = decoded(kind, changed(KIND, {"status": _allocation(skipNodeOperations=["*"])}))
    kind.strategy.parts["status"].prepare(new, decoded(kind, changed(KIND)))
    assert new["status"] == ALLOCATED


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "pending"),
        ({"status": ALLOCATED}, "allocated"),
        ({"status": {**ALLOCATED, "reservedFor": [CONSUMER]}}, "allocated,reserved"),
    ],
)
def test_row(fields: dict[str, Any], state: str) -> None:
    assert row(KIND, fields) == ["x", state, "90s"]


def test_row_of_a_claim_that_is_being_deleted() -> None:
    deleted = {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert row(KIND, {"metadata": deleted})[1] == "deleted"
    assert row(KIND, {"metadata": deleted, "status": ALLOCATED})[1] == "deleted,allocated"


def test_columns() -> None:
    assert columns(KIND) == "Name State Age |"

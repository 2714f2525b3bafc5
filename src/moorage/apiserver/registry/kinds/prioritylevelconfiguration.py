"""PriorityLevelConfigurations. Source: flowcontrol validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    at_least,
    between,
    or_else,
    part,
    required,
    satisfies,
    unique,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct

_TYPES = "io.k8s.api.flowcontrol.v1"
_GROUP = "flowcontrol.apiserver.k8s.io"
_LEVELS = ("Exempt", "Limited")
_RESPONSES = ("Queue", "Reject")
_QUEUING = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}
_SHARES = 30
_MAX_QUEUES = 10_000_000
_MAX_HASH_BITS = 60
_ZERO_SHARES = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
CATCH_ALL_SPEC = {
    "type": "Limited",
    "limited": {
        "nominalConcurrencyShares": 5,
        "limitResponse": {"type": "Reject"},
        "lendablePercent": 0,
    },
}
"""The fixed specification of the level `catch-all`."""

_SPEC: Shape = (("type", "Type", ""), ("limited", "Limited", None), ("exempt", "Exempt", None))
_EXEMPT: Shape = (
    ("nominalConcurrencyShares", "NominalConcurrencyShares", None),
    ("lendablePercent", "LendablePercent", None),
)
_LIMITED: Shape = (
    ("nominalConcurrencyShares", "NominalConcurrencyShares", 0),
    ("limitResponse", "LimitResponse", None),
    ("lendablePercent", "LendablePercent", None),
    ("borrowingLimitPercent", "BorrowingLimitPercent", None),
)
_RESPONSE: Shape = (("type", "Type", ""), ("queuing", "Queuing", None))
_QUEUES: Shape = (
    ("queues", "Queues", 0),
    ("handSize", "HandSize", 0),
    ("queueLengthLimit", "QueueLengthLimit", 0),
)


def default_priority_level(level: Obj) -> None:
    """Set the API defaults of a PriorityLevelConfiguration."""
    spec = level.get("spec", {})
    if "exempt" in spec:
        spec["exempt"].setdefault("nominalConcurrencyShares", 0)
        spec["exempt"].setdefault("lendablePercent", 0)
    limited = spec.get("limited")
    if limited is None:
        return
    limited.setdefault("nominalConcurrencyShares", _SHARES)
    limited.setdefault("lendablePercent", 0)
    queuing = limited.get("limitResponse", {}).get("queuing")
    if queuing is not None:
        queuing |= {field: queuing.get(field) or value for field, value in _QUEUING.items()}


def _type_errors(level: Obj) -> Iterator[FieldError]:
    name, kind = level["metadata"].get("name", ""), level["spec"].get("type", "")
    if (name == "exempt") != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield FieldError.invalid("spec.type", kind, detail)


def _hand_errors(queuing: Obj, path: str) -> Iterator[FieldError]:
    queues, hand, path = queuing.get("queues", 0), queuing.get("handSize", 0), f"{path}.handSize"
    if hand <= 0:
        yield FieldError.invalid(path, hand, "must be positive")
    elif hand > queues:
        detail = f"should not be greater than queues ({queues})"
        yield FieldError.invalid(path, hand, detail)
    elif math.ceil(math.log2(queues) * hand) > _MAX_HASH_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be "
            f"greater than {_MAX_HASH_BITS}"
        )
        yield FieldError.invalid(path, hand, detail)


_positive = at_least(1, "must be positive")
_queuing_errors = part(
    ("queueLengthLimit", or_else(0, _positive)),
    (
        "queues",
        or_else(0, _positive),
        satisfies(lambda queues: queues <= _MAX_QUEUES, f"must not be greater than {_MAX_QUEUES}"),
    ),
    ("", _hand_errors),
)


def _response_errors(response: Obj, path: str) -> Iterator[FieldError]:
    kind = response.get("type", "")
    if kind == "Queue" and "queuing" in response:
        yield from _queuing_errors(response["queuing"], f"{path}.queuing")
    elif kind and kind not in _RESPONSES:
        yield FieldError.not_supported(f"{path}.type", kind, _RESPONSES)


_nominal = at_least(0, "must be a non-negative integer")
_lendable = between(0, 100, "must be between 0 and 100, inclusive")
_PARTS = {
    "Exempt": part(
        ("exempt.nominalConcurrencyShares", _nominal), ("exempt.lendablePercent", _lendable)
    ),
    "Limited": part(
        ("limited.nominalConcurrencyShares", _nominal),
        ("limited.limitResponse", _response_errors),
        ("limited.lendablePercent", _lendable),
        (
            "limited.borrowingLimitPercent",
            at_least(0, "if specified, must be a non-negative integer"),
        ),
    ),
    "": part(),
}


def _part_errors(spec: Obj, path: str) -> list[FieldError]:
    kind = spec.get("type", "")
    if (check := _PARTS.get(kind)) is None:
        return [FieldError.not_supported(f"{path}.type", kind, _LEVELS)]
    return check(spec, path)


def _changed_level_errors(level: Obj) -> Iterator[FieldError]:
    name, spec = level["metadata"].get("name", ""), level["spec"]
    if name == "exempt" and {**spec, "exempt": {}} != {"type": "Exempt", "exempt": {}}:
        detail = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        yield FieldError.invalid("spec", _shown(spec), detail)
    if name == "catch-all" and spec != CATCH_ALL_SPEC:
        detail = "spec of 'catch-all' must equal the fixed value"
        yield FieldError.invalid("spec", _shown(spec), detail)


def _shown(spec: Obj) -> Obj:
    """Return a specification as errors show it, under Go's names."""
    shown = go_struct(spec, _SPEC)
    if "exempt" in spec:
        shown["Exempt"] = go_struct(spec["exempt"], _EXEMPT)
    if "limited" in spec:
        response = spec["limited"].get("limitResponse", {})
        shown["Limited"] = go_struct(spec["limited"], _LIMITED)
        shown["Limited"]["LimitResponse"] = go_struct(response, _RESPONSE)
        if "queuing" in response:
            shown["Limited"]["LimitResponse"]["Queuing"] = go_struct(response["queuing"], _QUEUES)
    return shown


def _member_errors(spec: Obj) -> Iterator[FieldError]:
    """Yield the errors of fields that go with a type, which upstream reports last."""
    kind = spec.get("type", "")
    if kind != "Exempt" and "exempt" in spec:
        yield _not_permitted("spec.exempt")
    if kind == "Limited" and "limited" not in spec:
        yield FieldError.required("spec.limited")
    elif kind != "Limited" and "limited" in spec:
        yield _not_permitted("spec.limited")
    if not kind:
        yield FieldError.required("spec.type")
    if "limited" not in spec:
        return
    response = spec["limited"].get("limitResponse", {})
    path, kind = "spec.limited.limitResponse", response.get("type", "")
    if kind == "Queue" and "queuing" not in response:
        yield FieldError.required(f"{path}.queuing")
    elif kind != "Queue" and "queuing" in response:
        yield _not_permitted(f"{path}.queuing")
    if not kind:
        yield FieldError.required(f"{path}.type")


def _not_permitted(path: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", "Forbidden")


def _annotation_errors(annotations: Obj, path: str) -> Iterator[FieldError]:
    if _ZERO_SHARES in annotations:
        yield FieldError.forbidden(path, f"annotation '{_ZERO_SHARES}' is forbidden")


_CONDITIONS = ("status.conditions[*].type", unique, required)
_validate_status = update(validator(_CONDITIONS))

validate_priority_level = validator(
    ("metadata.annotations", _annotation_errors),
    ("", without_path(_type_errors)),
    ("spec", _part_errors),
    ("", without_path(_changed_level_errors)),
    _CONDITIONS,
    ("spec", without_path(_member_errors)),
)


def _limited(field: str) -> Callable[[Obj], Any]:
    """Return the cell of a limited level's queues; `<none>` where it has none."""

    def cell(level: Obj) -> Any:
        response = level.get("spec", {}).get("limited", {}).get("limitResponse", {})
        return response["queuing"].get(field, 0) if "queuing" in response else NONE

    return cell


PRIORITY_LEVEL_CONFIGURATION = Kind(
    name="PriorityLevelConfiguration",
    plural="prioritylevelconfigurations",
    served=(Served(_GROUP, "v1", f"{_TYPES}.PriorityLevelConfiguration"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_priority_level,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_priority_level,
        validate_update=update(validate_priority_level),
        parts={"status": PartRules(keep_all_but_status, _validate_status)},
        spec_of=get_spec,
    ),
    printer=printer(
        NAME,
        column("Type", "spec.type", of=f"{_TYPES}.PriorityLevelConfigurationSpec"),
        column(
            "NominalConcurrencyShares",
            "spec.limited",
            absent=NONE,
            show=lambda limited: limited.get("nominalConcurrencyShares", 0),
            documented_by=(f"{_TYPES}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares"),
        ),
        *(
            column(
                f"{field[0].upper()}{field[1:]}",
                _limited(field),
                documented_by=f"{_TYPES}.QueuingConfiguration.{field}",
            )
            for field in ("queues", "handSize", "queueLengthLimit")
        ),
        AGE,
    ),
    subresources=status_subresource(),
)

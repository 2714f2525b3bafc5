"""PriorityLevelConfigurations. Source: flowcontrol validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import update
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
from moorage.apiserver.registry.validation.flow_control import (
    flow_status_errors,
    validate_flow_status,
)
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct

_TYPES = "io.k8s.api.flowcontrol.v1"
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


def validate_priority_level(level: Obj) -> list[FieldError]:
    """Return the errors of a PriorityLevelConfiguration."""
    errors: list[FieldError] = []
    if _ZERO_SHARES in level["metadata"].get("annotations", {}):
        errors.append(
            FieldError.forbidden(
                "metadata.annotations", f"annotation '{_ZERO_SHARES}' is forbidden"
            )
        )
    name, spec = level["metadata"].get("name", ""), level.get("spec", {})
    errors += _spec_errors(name, spec)
    if name == "exempt" and {**spec, "exempt": {}} != {"type": "Exempt", "exempt": {}}:
        errors.append(
            FieldError.invalid(
                "spec",
                _shown(spec),
                "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value",
            )
        )
    if name == "catch-all" and spec != CATCH_ALL_SPEC:
        errors.append(
            FieldError.invalid(
                "spec", _shown(spec), "spec of 'catch-all' must equal the fixed value"
            )
        )
    return [*errors, *flow_status_errors(level), *_member_errors(spec)]


def _spec_errors(name: str, spec: Obj) -> Iterator[FieldError]:
    kind = spec.get("type", "")
    if (name == "exempt") != (kind == "Exempt"):
        yield FieldError.invalid(
            "spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"
        )
    if kind == "Exempt":
        yield from _share_errors(spec.get("exempt", {}), "spec.exempt")
    elif kind == "Limited":
        if "limited" in spec:
            yield from _limited_errors(spec["limited"], "spec.limited")
    elif kind:
        yield FieldError.not_supported("spec.type", kind, _LEVELS)


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


def _share_errors(shares: Obj, path: str) -> Iterator[FieldError]:
    yield from _nominal_share_errors(shares, path)
    yield from _lendable_errors(shares, path)


def _nominal_share_errors(shares: Obj, path: str) -> Iterator[FieldError]:
    nominal = shares.get("nominalConcurrencyShares", 0)
    if nominal < 0:
        yield FieldError.invalid(
            f"{path}.nominalConcurrencyShares", nominal, "must be a non-negative integer"
        )


def _lendable_errors(shares: Obj, path: str) -> Iterator[FieldError]:
    lendable = shares.get("lendablePercent", 0)
    if not 0 <= lendable <= 100:
        yield FieldError.invalid(
            f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive"
        )


def _limited_errors(limited: Obj, path: str) -> Iterator[FieldError]:
    yield from _nominal_share_errors(limited, path)
    yield from _response_errors(limited.get("limitResponse", {}), f"{path}.limitResponse")
    yield from _lendable_errors(limited, path)
    borrowing = limited.get("borrowingLimitPercent", 0)
    if borrowing < 0:
        yield FieldError.invalid(
            f"{path}.borrowingLimitPercent",
            borrowing,
            "if specified, must be a non-negative integer",
        )


def _response_errors(response: Obj, path: str) -> Iterator[FieldError]:
    kind = response.get("type", "")
    if kind == "Queue" and "queuing" in response:
        yield from _queuing_errors(response["queuing"], f"{path}.queuing")
    elif kind and kind not in _RESPONSES:
        yield FieldError.not_supported(f"{path}.type", kind, _RESPONSES)


def _queuing_errors(queuing: Obj, path: str) -> Iterator[FieldError]:
    length, queues = queuing.get("queueLengthLimit", 0), queuing.get("queues", 0)
    hand = queuing.get("handSize", 0)
    if length <= 0:
        yield FieldError.invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield FieldError.invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MAX_QUEUES:
        yield FieldError.invalid(
            f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}"
        )
    if hand <= 0:
        yield FieldError.invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield FieldError.invalid(
            f"{path}.handSize", hand, f"should not be greater than queues ({queues})"
        )
    elif math.ceil(math.log2(queues) * hand) > _MAX_HASH_BITS:
        yield FieldError.invalid(
            f"{path}.handSize",
            hand,
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be "
            f"greater than {_MAX_HASH_BITS}",
        )


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


def _limited(field: str) -> Callable[[Obj], Any]:
    """Return the cell of a limited level's queues; `<none>` where it has none."""

    def cell(level: Obj) -> Any:
        response = level.get("spec", {}).get("limited", {}).get("limitResponse", {})
        return response["queuing"].get(field, 0) if "queuing" in response else NONE

    return cell


PRIORITY_LEVEL_CONFIGURATION = Kind(
    name="PriorityLevelConfiguration",
    plural="prioritylevelconfigurations",
    served=(
        Served(
            group="flowcontrol.apiserver.k8s.io",
            version="v1",
            type=f"{_TYPES}.PriorityLevelConfiguration",
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        default=default_priority_level,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_priority_level,
        validate_update=update(validate_priority_level),
        parts={"status": PartRules(keep_all_but_status, validate_flow_status)},
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

"""Flow control's configuration: what flow schemas and priority levels of the API amount to.

Broken levels are left out, as are schemas whose level is missing. The mandatory objects are
always there, with the specification that they must have. Source: apiserver `util/flowcontrol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from moorage.api.flow_control import (
    CATCH_ALL,
    EXEMPT,
    ExemptLevel,
    FlowSchema,
    FlowSchemaSpec,
    LimitedLevel,
    PolicyRulesWithSubjects,
    PriorityLevelConfiguration,
    PriorityLevelSpec,
    QueuingConfiguration,
)
from moorage.apiserver.flow_control.defaults import MANDATORY_LEVELS, MANDATORY_SCHEMAS
from moorage.apiserver.flow_control.fair_queues import is_dealable


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelConfiguration:
    """A usable priority level. `borrowing_percent` None: it may borrow all there is.

    `queuing` None: requests without a seat are refused at once.
    """

    name: str
    uid: str = ""
    is_exempt: bool = False
    shares: int = 0
    lendable_percent: int = 0
    borrowing_percent: int | None = None
    queuing: QueuingConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfiguration:
    """A usable flow schema. `distinguisher`: "ByUser", "ByNamespace", or "" for a single flow."""

    name: str
    level: str
    precedence: int
    uid: str = ""
    distinguisher: str = ""
    rules: tuple[PolicyRulesWithSubjects, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """All usable objects: `schemas` in the order of matching, `levels` by name."""

    schemas: tuple[SchemaConfiguration, ...]
    levels: Mapping[str, LevelConfiguration]


def digest(
    levels: Iterable[PriorityLevelConfiguration], schemas: Iterable[FlowSchema]
) -> Configuration:
    """Return the configuration that the API's objects make together."""
    usable = dict(_MANDATORY_LEVELS)
    for level in levels:
        digested = usable_level(level)
        if digested is not None:
            usable[digested.name] = digested
    ordered = dict(_MANDATORY_SCHEMAS)
    for schema in schemas:
        digested_schema = _schema(schema)
        if digested_schema.level in usable:
            ordered[digested_schema.name] = digested_schema
    in_order = sorted(ordered.values(), key=lambda schema: (schema.precedence, schema.name))
    return Configuration(tuple(in_order), usable)


def usable_level(level: PriorityLevelConfiguration) -> LevelConfiguration | None:
    """Return a priority level; None if it is broken."""
    name, uid, spec = level.metadata.name, level.metadata.uid, level.spec
    if name in _MANDATORY_LEVELS:
        mandatory = replace(_MANDATORY_LEVELS[name], uid=uid)
        if name == EXEMPT and spec.exempt is not None:
            return _with_shares(mandatory, spec.exempt)
        return mandatory
    if spec.type != "Limited" or spec.limited is None or spec.exempt is not None:
        return None
    return _limited(name, uid, spec.limited)


def _with_shares(level: LevelConfiguration, exempt: ExemptLevel) -> LevelConfiguration:
    """Return the exempt level with the shares that users choose."""
    return replace(
        level,
        shares=max(exempt.nominal_concurrency_shares, 0),
        lendable_percent=_percent(exempt.lendable_percent),
    )


def _limited(name: str, uid: str, limited: LimitedLevel) -> LevelConfiguration | None:
    queuing = limited.limit_response.queuing
    if (limited.limit_response.type == "Queue") != (queuing is not None):
        return None
    if queuing is not None and not is_dealable(queuing.queues, queuing.hand_size):
        return None
    borrowing = limited.borrowing_limit_percent
    return LevelConfiguration(
        name=name,
        uid=uid,
        shares=max(limited.nominal_concurrency_shares, 0),
        lendable_percent=_percent(limited.lendable_percent),
        borrowing_percent=None if borrowing is None else max(borrowing, 0),
        queuing=queuing,
    )


def _percent(value: int) -> int:
    return min(max(value, 0), 100)


def _schema(schema: FlowSchema) -> SchemaConfiguration:
    name, uid, spec = schema.metadata.name, schema.metadata.uid, schema.spec
    if name in _MANDATORY_SCHEMAS:
        return replace(_MANDATORY_SCHEMAS[name], uid=uid)
    return _schema_of(name, uid, spec)


def _schema_of(name: str, uid: str, spec: FlowSchemaSpec) -> SchemaConfiguration:
    method = spec.distinguisher_method
    return SchemaConfiguration(
        name=name,
        uid=uid,
        level=spec.priority_level_configuration.name,
        precedence=spec.matching_precedence,
        distinguisher="" if method is None else method.type,
        rules=spec.rules,
    )


def _mandatory_level(name: str) -> LevelConfiguration:
    spec = msgspec.convert(MANDATORY_LEVELS[name], PriorityLevelSpec)
    if spec.limited is None:
        return LevelConfiguration(name=name, is_exempt=True)
    level = _limited(name, "", spec.limited)
    assert level is not None
    return level


_MANDATORY_LEVELS = {name: _mandatory_level(name) for name in (EXEMPT, CATCH_ALL)}
_MANDATORY_SCHEMAS = {
    name: _schema_of(name, "", msgspec.convert(spec, FlowSchemaSpec))
    for name, spec in MANDATORY_SCHEMAS.items()
}

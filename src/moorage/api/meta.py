"""Object metadata, and the base of every typed object.

Typed objects are what controllers, the scheduler and the node agent read: unknown fields are
dropped, absent ones have the API's zero value, so a struct is for reading and for building the few
fields a writer owns, never for writing a whole object back. Timestamps are RFC 3339 text; see
`moorage.api.clock`. Source: apimachinery `metav1`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

Raw = dict[str, Any]
"""A JSON object whose shape the reader does not interpret."""


class Object(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """Base of the typed objects: immutable, camelCase on the wire, zero values omitted."""


class OwnerReference(Object, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(Object, frozen=True):
    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class ListMeta(Object, frozen=True):
    self_link: str = ""
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None
    shard_info: Raw | None = None


# Object references. Source: core/v1 `ObjectReference`.


class ObjectReference(Object, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""

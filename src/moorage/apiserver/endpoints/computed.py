"""Computed objects: replies of kinds whose objects are made when they are read, never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.negotiation import PARTIAL, PARTIAL_LIST, TABLE
from moorage.apiserver.endpoints.replies import Reply, formed
from moorage.apiserver.endpoints.representations import include_object
from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.columns.table import render_table
from moorage.apiserver.registry.kind import Obj


@dataclass(frozen=True, slots=True)
class ComputedReplies:
    """Replies with objects whole, as a Table or metadata alone.

    `has_protobuf`: whether a whole object has a protobuf form; lists have none.
    """

    clock: Clock
    has_protobuf: bool

    def reply(self, call: Call, obj: Obj) -> Reply:
        """Return an object in the negotiated form. Raises NotAcceptableError."""
        form = call.form(allows_protobuf=self.has_protobuf)
        if form.as_ and form.media is Media.PROTOBUF:
            form = call.form(allows_protobuf=False)
        match form.as_:
            case "":
                document = _typed(call, obj)
            case "Table":
                document = self._table(call, [obj], form.version)
            case _:
                document = _partial(obj, form.version)
        return formed(_encoded(document), form, type_name=call.served.type)

    def list_reply(self, call: Call, items: list[Obj]) -> Reply:
        """Return a list in the negotiated form. Raises NotAcceptableError."""
        form = call.form(is_list=True, allows_protobuf=False)
        if form.as_ == TABLE:
            document = self._table(call, items, form.version)
        elif form.as_ == PARTIAL_LIST:
            document = _list_of(
                PARTIAL_LIST,
                f"meta.k8s.io/{form.version}",
                [_partial(item, form.version) for item in items],
            )
        else:
            document = _list_of(call.kind.list_kind, call.served.api_version, items)
        return formed(_encoded(document), form)

    def _table(self, call: Call, items: list[Obj], version: str) -> Obj:
        return render_table(
            call.kind.printer,
            items,
            now=self.clock.now().timestamp(),
            include=include_object(call.query),
            list_metadata={},
            version=version,
            as_served=lambda obj: _typed(call, obj),
        )


def _encoded(document: Obj) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _typed(call: Call, obj: Obj) -> Obj:
    return {"kind": call.kind.name, "apiVersion": call.served.api_version, **obj}


def _partial(obj: Obj, version: str) -> Obj:
    return {
        "kind": PARTIAL,
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def _list_of(kind: str, api_version: str, items: list[Any]) -> Obj:
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items}

"""Writes of a rollout: patches of workloads, and what the API server answered.

A patch changes the template's class and the marks together, and applies only to the revision that
was looked at. Until the informer sees a write, the object that the server returned stands for it,
so that no step counts a workload as not moved yet.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import ConflictError, NotFoundError, StatusError, TooManyRequestsError
from moorage.api.meta import Raw
from moorage.api.runtime_rollouts import (
    MOVED_AT_ANNOTATION,
    MOVED_FROM_ANNOTATION,
    ROLLOUT_ANNOTATION,
    ROLLOUT_UID_ANNOTATION,
    WAVE_ANNOTATION,
)
from moorage.controllers.requests import locked
from moorage.controllers.runtimerollouts.observation import WORKLOADS, AnyWorkload
from moorage.runtimeclass.rollouts import Mark, Move
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, PatchType, UnreachableError

FIELD_MANAGER = "moorage-rollouts"
AGAIN_S = 60.0
"""Time after which a refused move is tried again, if the rollout still wants it."""

_REFUSED = range(400, 500)
_TRIES = 5

_log = logging.getLogger(__name__)


def template_patch(kind: str, class_name: str, mark: Mark | None) -> Raw:
    """Return the merge patch that gives a workload's template a class, and marks the workload."""
    notes: dict[str, str | None] = {
        ROLLOUT_ANNOTATION: mark.rollout if mark else None,
        ROLLOUT_UID_ANNOTATION: mark.rollout_uid if mark else None,
        MOVED_FROM_ANNOTATION: mark.moved_from if mark else None,
        MOVED_AT_ANNOTATION: format_time(mark.moved_at) if mark else None,
        WAVE_ANNOTATION: str(mark.wave) if mark else None,
    }
    template: Raw = {"template": {"spec": {"runtimeClassName": class_name}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    return {"metadata": {"annotations": notes}, "spec": spec}


class WorkloadWrites:
    """Patches workloads; remembers what was written until it is seen, and what was refused."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._written: dict[str, tuple[str, AnyWorkload]] = {}
        self._refused: dict[str, tuple[float, str]] = {}

    def current(self, copied: AnyWorkload) -> AnyWorkload:
        """Return the informer's copy, or the newer object that our own patch has made of it."""
        known = self._written.get(copied.metadata.uid)
        if known is None:
            return copied
        patched_version, written = known
        if copied.metadata.resource_version == patched_version:
            return written
        del self._written[copied.metadata.uid]
        return copied

    def refusal(self, uid: str) -> str:
        """Return why the latest move of a workload was refused, empty if it was not or long ago."""
        known = self._refused.get(uid)
        if known is None:
            return ""
        until, message = known
        if self._clock.monotonic() >= until:
            del self._refused[uid]
            return ""
        return message

    def forget(self, uid: str) -> None:
        """Forget a workload that is gone."""
        self._written.pop(uid, None)
        self._refused.pop(uid, None)

    async def carry_out(self, moves: tuple[Move, ...], copies: dict[str, AnyWorkload]) -> bool:
        """Patch all workloads, and return whether any was refused.

        `copies` are the objects that were looked at, by uid. A workload that changed meanwhile or
        is gone is left for the next step. Raises StatusError or UnreachableError, when all have
        been tried, if the server failed.
        """
        answers = await asyncio.gather(
            *(self._patch(move, copies[move.workload.uid]) for move in moves),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return any(answers)

    async def _patch(self, move: Move, looked_at: AnyWorkload) -> bool:
        """Patch one workload, and return whether it was refused."""
        meta = looked_at.metadata
        patch = template_patch(move.workload.kind, move.class_name, move.mark)
        patch["metadata"] |= locked(meta)
        try:
            written: Raw = await self._client.patch(
                _raw(move.workload.kind),
                meta.name,
                patch,
                meta.namespace,
                kind=PatchType.MERGE,
                field_manager=FIELD_MANAGER,
            )
        except (ConflictError, NotFoundError):
            return False
        except (TooManyRequestsError, UnreachableError):
            raise
        except StatusError as error:
            if error.status_code not in _REFUSED:
                raise
            self._refused[meta.uid] = (self._clock.monotonic() + AGAIN_S, str(error))
            return True
        self._refused.pop(meta.uid, None)
        typed = msgspec.convert(written, WORKLOADS[move.workload.kind].type)
        self._written[meta.uid] = (meta.resource_version, typed)
        await self._hand_back(move.workload.kind, written)
        return False

    async def _hand_back(self, kind: str, present: Raw) -> None:
        """Give a moved template's class back to its manager; what fails is logged.

        The move itself is done, whatever becomes of this. Raises UnreachableError.
        """
        for _ in range(_TRIES):
            meta = present["metadata"]
            entries = handed_back(meta.get("managedFields", []), kind, FIELD_MANAGER)
            if entries is None:
                return
            lock = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            try:
                await self._patch_metadata(kind, meta, lock | {"managedFields": entries})
                return
            except ConflictError:
                # Its controller writes the status meanwhile; a patch of nothing reads the object.
                pass
            except NotFoundError:
                return
            except StatusError as error:
                place = f"{kind} {meta['namespace']}/{meta['name']}"
                _log.warning("class of %s stays owned by %s: %s", place, FIELD_MANAGER, error)
                return
            try:
                present = await self._patch_metadata(kind, meta, {"uid": meta["uid"]})
            except (ConflictError, NotFoundError):
                return

    async def _patch_metadata(self, kind: str, meta: Raw, changes: Raw) -> Raw:
        stored: Raw = await self._client.patch(
            _raw(kind),
            meta["name"],
            {"metadata": changes},
            meta["namespace"],
            kind=PatchType.MERGE,
            field_manager=FIELD_MANAGER,
        )
        return stored


def _raw(kind: str) -> Resource[Any]:
    """Return a kind's resource whose objects are dicts, which have `managedFields`."""
    return replace(WORKLOADS[kind], type=dict)


# Owners of a template's class: a move leaves the field to the manager that writes the template.
#
# A server-side apply of another manager conflicts with the last manager that changed a field. If a
# rollout stayed the owner of `runtimeClassName`, each later change of it by Helm 4, a GitOps tool
# or `kubectl apply --server-side` would be refused. So the field goes back to the managers that own
# the
# template's containers; the annotations of the rollout stay its own. Source: "Server-Side Apply",
# `metadata.managedFields`, which a client may write.

_FIELD = "f:runtimeClassName"
_SIBLING = "f:containers"
_TEMPLATE = ("f:spec", "f:template", "f:spec")
_JOB_TEMPLATE = ("f:spec", "f:jobTemplate", "f:spec", "f:template", "f:spec")

Entry = dict[str, Any]
"""An entry of `managedFields`."""


def handed_back(entries: list[Entry], kind: str, manager: str) -> list[Entry] | None:
    """Return entries in which a manager gives the class of a template to those who write it.

    None if the manager does not own it, or there is no one to give it to: the field is then the
    only trace of who set it.
    """
    path = _JOB_TEMPLATE if kind == "CronJob" else _TEMPLATE
    own = [
        entry for entry in entries if entry.get("manager") == manager and _owns(entry, path, _FIELD)
    ]
    writers = [
        entry
        for entry in entries
        if entry.get("manager") != manager
        and not entry.get("subresource")
        and _owns(entry, path, _SIBLING)
    ]
    applying = [entry for entry in writers if entry.get("operation") == "Apply"]
    receiving = applying or writers
    if not own or not receiving:
        return None
    changed = []
    for entry in entries:
        if entry in own:
            fields = _without(entry["fieldsV1"], (*path, _FIELD))
            if fields:
                changed.append({**entry, "fieldsV1": fields})
        elif entry in receiving:
            changed.append({**entry, "fieldsV1": _with(entry["fieldsV1"], (*path, _FIELD))})
        else:
            changed.append(entry)
    return changed


def _owns(entry: Entry, path: tuple[str, ...], name: str) -> bool:
    fields = entry.get("fieldsV1")
    for step in path:
        fields = fields.get(step) if isinstance(fields, dict) else None
    return isinstance(fields, dict) and name in fields


def _without(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return fields without the one at a path, and without what is empty then."""
    first, *rest = path
    kept = {key: value for key, value in fields.items() if key != first}
    if rest and (below := _without(fields[first], tuple(rest))):
        kept[first] = below
    return kept


def _with(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    below = _with(fields.get(first, {}), tuple(rest)) if rest else {}
    return {**fields, first: below}

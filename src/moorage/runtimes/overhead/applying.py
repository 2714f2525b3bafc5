"""Application of a report: a new class version with the proposed overhead, or a change in place."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.errors import ConflictError
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.text import counted
from moorage.runtimeclass.class_versions import (
    VersionError,
    evidence_annotations,
    has_overhead,
    in_place_patch,
    newest_version,
    next_version,
    origin_of,
)
from moorage.runtimes.overhead.options import MeasurementError
from moorage.runtimes.overhead.report import Report, mebibytes
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client, PatchType

_MOST_LISTED = 10_000


class Applied(msgspec.Struct, frozen=True):
    """Outcome: the class that declares the proposal, and whether anything was written."""

    runtime_class: str
    is_changed: bool


async def apply_report(client: Client, report: Report, *, in_place: bool) -> Applied:
    """Write a report's proposal as a new class version, or into the class itself.

    Writes nothing if the class, or its newest version, declares the proposal already. Raises
    MeasurementError when the report is no basis for it, StatusError, UnreachableError.
    """
    if report.proposal is None or report.failures:
        raise MeasurementError(
            f"nothing is applied: {len(report.failures)} of {len(report.pods)} probe pods gave no "
            "sample; remedy what the report says of them and measure again"
        )
    if not report.runtime_class:
        raise MeasurementError(
            f"nothing is applied: no class has the handler {report.handler}; create one first"
        )
    classes = await _classes(client)
    current = classes.get(report.runtime_class)
    if current is None:
        raise MeasurementError(f"class {report.runtime_class} was deleted meanwhile")
    metas = [_meta(one) for one in classes.values()]
    newest = report.runtime_class
    if not in_place:
        newest = newest_version(origin_of(_meta(current)), metas)
    pod_fixed = report.proposal.pod_fixed
    if has_overhead(classes[newest], pod_fixed):
        return Applied(newest, is_changed=False)
    evidence = evidence_annotations(evidence_of(report), report.measured_at)
    if in_place:
        return await _change(client, current, pod_fixed, evidence)
    try:
        version = next_version(classes[newest], classes, pod_fixed, evidence)
    except VersionError as error:
        raise MeasurementError(
            f"{error}; use --in-place, or a class with a shorter name"
        ) from error
    await client.create(RUNTIME_CLASSES, version)
    return Applied(version["metadata"]["name"], is_changed=True)


async def _change(
    client: Client, current: Raw, pod_fixed: dict[str, str], evidence: dict[str, str]
) -> Applied:
    name = current["metadata"]["name"]
    declared = (current.get("overhead") or {}).get("podFixed") or {}
    previous = msgspec.json.encode(declared, order="sorted").decode()
    patch = in_place_patch(current, pod_fixed, evidence, previous)
    try:
        await client.patch(RUNTIME_CLASSES, name, patch, kind=PatchType.MERGE)
    except ConflictError as error:
        raise MeasurementError(f"class {name} was changed meanwhile: try again") from error
    return Applied(name, is_changed=True)


def evidence_of(report: Report) -> str:
    """Return the evidence of a proposal, in a sentence."""
    if report.proposal is None:
        return ""
    memory = report.proposal.memory
    return (
        f"memory {mebibytes(memory.estimate)} at percentile {memory.percentile:g} of "
        f"{counted(report.proposal.samples, 'pod')} of the handler {report.handler}, between "
        f"{mebibytes(memory.lower)} and {mebibytes(memory.upper)} with confidence "
        f"{memory.confidence:.2f}"
    )


async def _classes(client: Client) -> dict[str, Raw]:
    """Return all classes as JSON objects, by name: a version keeps fields that we do not know."""
    body = await client.request("GET", RUNTIME_CLASSES.path(), query={"limit": str(_MOST_LISTED)})
    listed: Any = msgspec.json.decode(body)
    return {one["metadata"]["name"]: one for one in listed.get("items") or ()}


def _meta(runtime_class: Raw) -> ObjectMeta:
    return msgspec.convert(runtime_class["metadata"], ObjectMeta)

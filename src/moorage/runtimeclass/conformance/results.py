"""Results of conformance tests: verdicts, what a class carries of them, and when that is stale.

Pure. A class carries the names of the standard classes that it proved, the date, and a digest of
what was tested: the catalogue, the handler, and the program behind it on each node. When a program
is replaced the digest no longer fits, and the result no longer counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

import msgspec

from moorage.api.meta import Raw
from moorage.api.runtime_group import (
    CONFORMANCE_ANNOTATION,
    CONFORMANCE_DATE_ANNOTATION,
    CONFORMANCE_TESTED_ANNOTATION,
    RuntimeClass,
    RuntimeProfile,
)
from moorage.runtimeclass.conformance.outcomes import NodeFacts, Outcome, printable
from moorage.runtimeclass.conformance.properties import (
    CATALOGUE_VERSION,
    STANDARD_CLASSES,
    Property,
    StandardClass,
)
from moorage.runtimeclass.temporary_classes import is_temporary

_MOST_EVIDENCE = 512


class Verdict(StrEnum):
    """Verdict on a property; UNTESTED where its probe gave no answer."""

    PASSED = "passed"
    FAILED = "failed"
    UNTESTED = "untested"


class PropertyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a property on one node. `output` is what the probe printed, made printable."""

    name: str
    claim: str
    verdict: Verdict
    evidence: str
    node: str = ""
    output: str = ""
    duration_s: float = 0.0


class ClassResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a class: its properties, and the standard classes that follow.

    `tested` is the digest of what was tested.
    """

    runtime_class: str
    handler: str
    tested_at: str
    tested: str
    standards: tuple[str, ...]
    conforms_to: tuple[str, ...]
    properties: tuple[PropertyResult, ...]


def judge(
    tested: Property, outcome: Outcome, node: NodeFacts, duration_s: float = 0.0
) -> PropertyResult:
    """Return the result of a property from its probe's outcome."""
    has_answer = outcome.has_ended and not outcome.error
    if not has_answer and not tested.probe.may_fail:
        verdict, evidence = Verdict.UNTESTED, outcome.error or "it did not end"
    else:
        holds, evidence = tested.read(outcome, node)
        verdict = Verdict.PASSED if holds else Verdict.FAILED
    return PropertyResult(
        name=tested.name,
        claim=tested.claim,
        verdict=verdict,
        evidence=" ".join(printable(evidence, _MOST_EVIDENCE).split()),
        node=outcome.node,
        output=printable(outcome.output),
        duration_s=round(duration_s, 3),
    )


def untested(tested: Property, why: str) -> PropertyResult:
    """Return the result of a property whose probe did not run."""
    return PropertyResult(
        name=tested.name, claim=tested.claim, verdict=Verdict.UNTESTED, evidence=why
    )


def conforming(
    standards: Iterable[StandardClass], results: Iterable[PropertyResult]
) -> tuple[str, ...]:
    """Return the standard classes of which every property passed, on every node it was tested."""
    verdicts: dict[str, set[Verdict]] = {}
    for one in results:
        verdicts.setdefault(one.name, set()).add(one.verdict)
    return tuple(
        standard.name
        for standard in standards
        if all(verdicts.get(name) == {Verdict.PASSED} for name in standard.properties)
    )


def digest_of_tested(runtime_class: RuntimeClass, profiles: Iterable[RuntimeProfile]) -> str:
    """Return the digest of what a test of a class covers, `sha256:HEX`.

    Profiles of other handlers do not count. Nodes with the same program count once: a node that is
    added with a program that was tested changes nothing.
    """
    programs = sorted(
        {
            one.status.program.digest if one.status.program is not None else ""
            for one in profiles
            if one.spec.handler == runtime_class.handler
        }
    )
    tested = [CATALOGUE_VERSION, runtime_class.handler, programs]
    return f"sha256:{hashlib.sha256(msgspec.json.encode(tested)).hexdigest()}"


def result_annotations(result: ClassResult, carried: Mapping[str, str]) -> dict[str, str | None]:
    """Return the annotations that a class gets; None removes one. `carried` are those it has.

    Standards that this test covered are as it found them. Those of an earlier test stay if it
    tested the same: the same catalogue, handler and programs. The date is that of the last test.
    """
    proved = set(result.conforms_to)
    if carried.get(CONFORMANCE_TESTED_ANNOTATION) == result.tested:
        proved |= {*_names(carried)} - {*result.standards}
    names = ",".join(name for name in STANDARD_CLASSES if name in proved)
    return {
        CONFORMANCE_ANNOTATION: names or None,
        CONFORMANCE_DATE_ANNOTATION: result.tested_at,
        CONFORMANCE_TESTED_ANNOTATION: result.tested,
    }


def _names(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the standards that annotations claim."""
    return tuple(filter(None, annotations.get(CONFORMANCE_ANNOTATION, "").split(",")))


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Standing of a class by its annotations: what it proved and when; stale, it proves nothing."""

    runtime_class: str
    handler: str
    conforms_to: tuple[str, ...] = ()
    tested_at: str = ""
    is_stale: bool = False


def standing(runtime_class: RuntimeClass, profiles: Iterable[RuntimeProfile]) -> Standing:
    """Return the standing of a class, given the profiles of the nodes' handlers."""
    annotations: Mapping[str, str] = runtime_class.metadata.annotations
    tested = annotations.get(CONFORMANCE_TESTED_ANNOTATION, "")
    return Standing(
        runtime_class=runtime_class.metadata.name,
        handler=runtime_class.handler,
        conforms_to=_names(annotations),
        tested_at=annotations.get(CONFORMANCE_DATE_ANNOTATION, ""),
        is_stale=bool(tested) and tested != digest_of_tested(runtime_class, profiles),
    )


def standings(
    classes: Iterable[RuntimeClass], profiles: Collection[RuntimeProfile]
) -> list[Standing]:
    """Return the standings of classes by name; those of probes and measurements are left out."""
    lasting = [one for one in classes if not is_temporary(one.metadata.name, one.metadata.labels)]
    return [standing(one, profiles) for one in sorted(lasting, key=lambda one: one.metadata.name)]


def annotation_patch(result: ClassResult, runtime_class: RuntimeClass) -> Raw:
    """Return the merge patch that writes a result on its class, if it is as given."""
    meta = runtime_class.metadata
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "annotations": result_annotations(result, meta.annotations),
        }
    }

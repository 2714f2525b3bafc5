"""Results: which standards follow, what a class carries, and when that is stale."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_group import (
    CONFORMANCE_ANNOTATION,
    CONFORMANCE_DATE_ANNOTATION,
    CONFORMANCE_TESTED_ANNOTATION,
    MEASUREMENT_LABEL,
    PROBE_LABEL,
    RuntimeClass,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
    RuntimeProgram,
)
from moorage.runtimeclass.conformance import STANDARD_CLASSES, ClassResult, PropertyResult, Verdict
from moorage.runtimeclass.conformance.results import (
    annotation_patch,
    conforming,
    digest_of_tested,
    result_annotations,
    standing,
    standings,
)


def profile(node: str, digest: str, handler: str = "h") -> RuntimeProfile:
    program = RuntimeProgram(digest=digest) if digest else None
    return RuntimeProfile(
        spec=RuntimeProfileSpec(node_name=node, handler=handler),
        status=RuntimeProfileStatus(program=program),
    )


def verdict(name: str, verdict: Verdict = Verdict.PASSED) -> PropertyResult:
    return PropertyResult(name=name, claim="", verdict=verdict, evidence="")


def result(
    *conforms_to: str, tested: str = "sha256:1", standards: tuple[str, ...] = ("native",)
) -> ClassResult:
    return ClassResult(
        runtime_class="box", handler="h", tested_at="2026-01-01T00:00:00Z", tested=tested,
        standards=standards, conforms_to=conforms_to, properties=(),
    )  # fmt: skip


BOX = RuntimeClass(metadata=ObjectMeta(name="box"), handler="h")


def kept(annotations: dict[str, str | None]) -> dict[str, str]:
    """Return the annotations that a class has after the patch."""
    return {key: value for key, value in annotations.items() if value is not None}


def carrying(annotations: dict[str, Any]) -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name="box", annotations=annotations), handler="h")


@pytest.mark.parametrize("spoiled", [None, Verdict.FAILED, Verdict.UNTESTED])
def test_a_class_conforms_if_every_property_passed(spoiled: Verdict | None) -> None:
    offline = STANDARD_CLASSES["offline"]
    results = [verdict(name) for name in offline.properties]
    if spoiled is not None:
        results.append(verdict("no-network", spoiled))
    assert conforming([offline], results) == (() if spoiled else ("offline",))


def test_a_property_without_a_result_is_not_proved() -> None:
    assert conforming([STANDARD_CLASSES["offline"]], [verdict("runs")]) == ()


def test_a_class_carries_what_it_proved_its_date_and_digest() -> None:
    assert result_annotations(result("native", "offline"), {}) == {
        CONFORMANCE_ANNOTATION: "native,offline",
        CONFORMANCE_DATE_ANNOTATION: "2026-01-01T00:00:00Z",
        CONFORMANCE_TESTED_ANNOTATION: "sha256:1",
    }


def test_a_class_that_proves_nothing_loses_its_claim() -> None:
    before = result_annotations(result("native"), {})
    assert result_annotations(result(), kept(before))[CONFORMANCE_ANNOTATION] is None


def test_a_test_of_one_standard_keeps_what_was_proved_of_others() -> None:
    before = result_annotations(result("native", standards=("native", "offline")), {})
    after = result_annotations(result("offline", standards=("offline",)), kept(before))
    assert after[CONFORMANCE_ANNOTATION] == "native,offline"
    failed = result_annotations(result(standards=("native",)), kept(after))
    assert failed[CONFORMANCE_ANNOTATION] == "offline"


def test_what_was_proved_of_another_program_is_no_longer_claimed() -> None:
    before = result_annotations(result("native", tested="sha256:old"), {})
    after = result_annotations(result("offline", standards=("offline",)), kept(before))
    assert after[CONFORMANCE_ANNOTATION] == "offline"


def test_a_result_is_written_only_on_the_class_that_was_read() -> None:
    read = RuntimeClass(metadata=ObjectMeta(name="box", resource_version="7"), handler="h")
    assert annotation_patch(result("native"), read)["metadata"]["resourceVersion"] == "7"


def test_a_result_is_stale_when_a_program_changed() -> None:
    tested = digest_of_tested(BOX, [profile("n1", "sha256:a")])
    carried = carrying(kept(result_annotations(result("native", tested=tested), {})))
    assert not standing(carried, [profile("n1", "sha256:a")]).is_stale
    assert standing(carried, [profile("n1", "sha256:b")]).is_stale
    assert standing(carried, [profile("n1", "sha256:a"), profile("n2", "sha256:b")]).is_stale
    # Another node with the same program, and other handlers, change nothing.
    same = [
        profile("n2", "sha256:a"),
        profile("n1", "sha256:a"),
        profile("n1", "sha256:x", "other"),
    ]
    assert not standing(carried, same).is_stale
    assert standing(carried, same).conforms_to == ("native",)


def test_another_handler_is_another_digest() -> None:
    other = RuntimeClass(metadata=ObjectMeta(name="box"), handler="other")
    assert digest_of_tested(BOX, []) != digest_of_tested(other, [])


def test_a_class_that_was_never_tested_is_not_stale() -> None:
    untested = standing(BOX, [profile("n1", "")])
    assert (untested.conforms_to, untested.tested_at, untested.is_stale) == ((), "", False)


def test_classes_of_probes_and_measurements_are_not_listed() -> None:
    classes = [
        RuntimeClass(metadata=ObjectMeta(name=name, labels=labels), handler="h")
        for name, labels in (
            ("z", {}),
            ("moorage-probe-h.n1", {PROBE_LABEL: "agent"}),
            ("measured", {MEASUREMENT_LABEL: "run"}),
            ("a", {}),
        )
    ]
    assert [one.runtime_class for one in standings(classes, [])] == ["a", "z"]

"""A node does what an installation says once it may, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_installations import (
    InstallationSource,
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationSpec,
    RuntimeInstallationStatus,
)
from moorage.runtimeclass.installations import (
    NodeFacts,
    Record,
    Step,
    next_step,
    source_digest,
    source_of,
)

NODE = NodeFacts("n", {"pool": "x"}, "amd64")
SPEC = RuntimeInstallationSpec(
    handler="h",
    sources=(
        InstallationSource(architecture="arm64", path="/arm"),
        InstallationSource(architecture="amd64", path="/amd"),
    ),
    node_selector={"pool": "x"},
)
ENTRY = NodeInstallation(name="n")
DONE = Record(uid="u", handler="h", digest=source_digest(SPEC, "amd64"))


def _object(
    *, allowed: bool = False, observed: int = 1, deleted: bool = False, entry: bool = False,
    spec: RuntimeInstallationSpec = SPEC,
) -> RuntimeInstallation:  # fmt: skip
    return RuntimeInstallation(
        metadata=ObjectMeta(
            name="i", uid="u", generation=1, deletion_timestamp="2026-01-01T00:00:00Z"
            if deleted else None,
        ),
        spec=spec,
        status=RuntimeInstallationStatus(
            observed_generation=observed,
            allowed=("n",) if allowed else ("m",),
            nodes=(ENTRY,) if entry else (),
        ),
    )  # fmt: skip


OTHER_POOL = msgspec.structs.replace(SPEC, node_selector={"pool": "y"})
RETAINED = msgspec.structs.replace(OTHER_POOL, removal_policy="Retain")
NO_SOURCE = msgspec.structs.replace(SPEC, sources=SPEC.sources[:1])
CHANGED = msgspec.structs.replace(SPEC, options={"root": "/r"})


@pytest.mark.parametrize(
    ("installation", "record", "step"),
    [
        (_object(), None, Step.WAIT),
        (_object(allowed=True), None, Step.INSTALL),
        (_object(allowed=True, observed=0), None, Step.WAIT),
        (_object(), DONE, Step.REPORT),
        (_object(allowed=True), DONE, Step.REPORT),
        (_object(allowed=True, spec=CHANGED), DONE, Step.INSTALL),
        (_object(spec=CHANGED), DONE, Step.WAIT),
        (_object(allowed=True, spec=NO_SOURCE), None, Step.UNSUPPORTED),
        (_object(spec=OTHER_POOL), None, Step.NOTHING),
        (_object(spec=OTHER_POOL, entry=True), None, Step.FORGET),
        (_object(spec=OTHER_POOL), DONE, Step.WAIT),
        (_object(spec=OTHER_POOL, allowed=True), DONE, Step.REMOVE),
        (_object(spec=RETAINED), DONE, Step.FORGET),
        (_object(deleted=True), DONE, Step.WAIT),
        (_object(deleted=True, allowed=True), DONE, Step.REMOVE),
        (_object(deleted=True), None, Step.NOTHING),
        (None, None, Step.NOTHING),
        (None, DONE, Step.REMOVE),
        (None, msgspec.structs.replace(DONE, removal_policy="Retain"), Step.FORGET),
        (_object(allowed=True), msgspec.structs.replace(DONE, uid="former"), Step.REMOVE),
    ],
)
def test_the_next_step(
    installation: RuntimeInstallation | None, record: Record | None, step: Step
) -> None:
    assert next_step(installation, record, NODE) is step


def test_what_decides_a_nodes_content_changes_the_digest_and_nothing_else_does() -> None:
    assert source_of(SPEC, "amd64") == SPEC.sources[1]
    assert source_of(SPEC, "riscv64") is None
    same = msgspec.structs.replace(
        SPEC, max_unavailable=7, node_selector={}, removal_policy="Retain",
        sources=(InstallationSource(architecture="arm64", path="/new"), SPEC.sources[1]),
    )  # fmt: skip
    assert source_digest(same, "amd64") == source_digest(SPEC, "amd64")
    for other in (
        CHANGED,
        msgspec.structs.replace(SPEC, adapter="shim"),
        msgspec.structs.replace(SPEC, handler="g"),
        msgspec.structs.replace(
            SPEC, sources=(InstallationSource(architecture="amd64", path="/new"),)
        ),
    ):
        assert source_digest(other, "amd64") != source_digest(SPEC, "amd64")

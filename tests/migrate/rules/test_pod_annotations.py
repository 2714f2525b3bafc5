"""Annotations of former engines as classes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.migrate.rules.changes import applied
from moorage.migrate.rules.pod_security_policies import (
    DEFAULT_CLASSES,
    Meaning,
    migrate_annotations,
)

_UNTRUSTED = "io.kubernetes.cri.untrusted-workload"
_TRUSTED = "io.kubernetes.cri-o.TrustedSandbox"
_FRAKTI = "runtime.frakti.alpha.kubernetes.io"
_WINDOWS = "experimental.windows.kubernetes.io/isolation-type"
_CLASSES = {meaning: name for meaning, (name, _) in DEFAULT_CLASSES.items()}


def _pod(annotations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"containers": [], **spec},
    }


def _migrated(document: dict[str, Any]) -> tuple[dict[str, Any], list[str], Meaning | None]:
    result = migrate_annotations(document, _CLASSES)
    outcome = result.outcome
    notes = [f"{severity}: {text}" for severity, text in outcome.notes]
    return applied(document, outcome.operations), notes, result.meaning


@pytest.mark.parametrize(
    ("annotation", "value", "class_name"),
    [
        (_UNTRUSTED, "true", "untrusted"),
        (_UNTRUSTED, "false", None),
        (_TRUSTED, "false", "untrusted"),
        (_TRUSTED, "true", None),
        (f"{_FRAKTI}/OSContainer", "true", "native"),
        (f"{_FRAKTI}/OSContainer", "false", None),
        (f"{_FRAKTI}/Unikernel", "true", "unikernel"),
        (_WINDOWS, "hyperv", "hyperv"),
        (_WINDOWS, "process", None),
    ],
)
def test_an_annotation_becomes_a_class(annotation: str, value: str, class_name: str | None) -> None:
    after, notes, _ = _migrated(_pod({annotation: value, "other": "x"}))
    assert after["spec"].get("runtimeClassName") == class_name
    assert after["metadata"]["annotations"] == {"other": "x"}
    assert not notes


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template")),
        ("PodTemplate", ("template",)),
        ("Rollout", ("spec", "template")),
    ],
)
def test_a_template_is_found_in_each_kind(kind: str, path: tuple[str, ...]) -> None:
    document: Any = {"metadata": {"annotations": {_UNTRUSTED: "true"}}, "spec": {"containers": []}}
    for key in reversed(path):
        document = {key: document}
    version = "v1" if kind == "PodTemplate" else "example.com/v1"
    after, _, meaning = _migrated({"apiVersion": version, "kind": kind, **document})
    template: Any = after
    for key in path:
        template = template[key]
    assert template == {"spec": {"containers": [], "runtimeClassName": "untrusted"}}
    assert meaning is Meaning.UNTRUSTED


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (_pod({_UNTRUSTED: "true"}, runtimeClassName="kata"), "but runtimeClassName is 'kata'"),
        (_pod({_UNTRUSTED: "true", _WINDOWS: "hyperv"}), "contradict each other"),
        (_pod({_UNTRUSTED: "yes"}), "has the value 'yes', which no engine knew"),
        (_pod({_UNTRUSTED: True}), "is not a text; quote its value"),
    ],
)
def test_a_contradiction_is_left_to_a_person(document: dict[str, Any], reason: str) -> None:
    after, notes, _ = _migrated(document)
    assert after == document
    assert notes[0].startswith("refused: ")
    assert reason in notes[0]


def test_a_class_that_says_the_same_stays() -> None:
    after, _, _ = _migrated(_pod({_UNTRUSTED: "true"}, runtimeClassName="untrusted"))
    assert after["spec"]["runtimeClassName"] == "untrusted"
    assert "annotations" not in after["metadata"]


def test_host_namespaces_are_pointed_out() -> None:
    _, notes, _ = _migrated(_pod({_UNTRUSTED: "true"}, hostNetwork=True, hostPID=True))
    assert notes == [
        "note: it has hostNetwork, hostPID, which containerd refused with its annotation and most "
        "sandboxes cannot give"
    ]


def test_an_object_that_only_looks_like_a_pod_is_left_alone() -> None:
    document = _pod({_UNTRUSTED: "true"}) | {"apiVersion": "example.com/v1"}
    assert _migrated(document) == (document, [], None)

"""RuntimeClasses of former versions as v1, on their text."""

from __future__ import annotations

import pytest

from moorage.migrate.rules import Options, Source, make_plan

_HEAD = "kind: RuntimeClass\nmetadata:\n  name: kata\n"


def _migrated(text: str, default_handler: str = "") -> tuple[str, list[str]]:
    """The text afterwards, and what was found, without the place."""
    plan = make_plan([Source("a.yaml", text)], {}, Options(default_handler=default_handler))
    findings = [str(finding).removeprefix("a.yaml ") for finding in plan.findings]
    return plan.changed.get("a.yaml", text), findings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec:\n  runtimeHandler: kata\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: kata\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec:  # nested\n"
            "    # Fast ones.\n    runtimeHandler: 'kata.qemu' # qemu\n    overhead:\n"
            "        podFixed: {cpu: 1m}\n\n    # The end.\n# Outside.\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}# nested\n"
            "# Fast ones.\nhandler: 'kata-qemu' # qemu\noverhead:\n"
            "    podFixed: {cpu: 1m}\n\n# The end.\n# Outside.\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1beta1 # old\n{_HEAD}handler: kata\n",
            f"apiVersion: node.k8s.io/v1 # old\n{_HEAD}handler: kata\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: kata.qemu",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: kata-qemu",
        ),
        (
            '{"apiVersion":"node.k8s.io/v1alpha1","kind":"RuntimeClass",'
            '"metadata":{"name":"a"},"spec":{"runtimeHandler":"a","overhead":{"podFixed":{}}}}',
            '{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass",'
            '"metadata":{"name":"a"},"handler":"a","overhead":{"podFixed":{}}}',
        ),
        (
            '{\n  "apiVersion": "node.k8s.io/v1alpha1",\n  "kind": "RuntimeClass",\n'
            '  "metadata": {"name": "a"},\n  "spec": {\n    "overhead": {\n      "podFixed": {}\n'
            '    },\n    "runtimeHandler": "a.b"\n  }\n}\n',
            '{\n  "apiVersion": "node.k8s.io/v1",\n  "kind": "RuntimeClass",\n'
            '  "metadata": {"name": "a"},\n  "overhead": {\n    "podFixed": {}\n'
            '  },\n  "handler": "a-b"\n}\n',
        ),
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec: {{}}\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: runc\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec:\n  overhead: {{}}\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: runc\noverhead: {{}}\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec:\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: runc\n",
        ),
        (
            f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}spec:\n  runtimeHandler: \"\"\n",
            f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: \"runc\"\n",
        ),
        (
            "apiVersion: node.k8s.io/v1alpha1\r\nkind: RuntimeClass\r\nmetadata: {name: a}\r\n"
            "spec:\r\n  runtimeHandler: a\r\n",
            "apiVersion: node.k8s.io/v1\r\nkind: RuntimeClass\r\nmetadata: {name: a}\r\n"
            "handler: a\r\n",
        ),
        (
            "\ufeffapiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: a}\n"
            "handler: a\n",
            "\ufeffapiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\n"
            "handler: a\n",
        ),
    ],
)  # fmt: skip
def test_a_class_of_a_former_version(before: str, after: str) -> None:
    assert _migrated(before, "runc") == (after, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("spec: {}\n", "it names no handler, which meant the runtime's default one"),
        ("spec: {runtimeHandler: a}\nhandler: b\n", "it has both handler and spec.runtimeHandler"),
        ("spec: {runtimeHandler: 5}\n", "its handler is not a text"),
        (
            "spec: {runtimeHandler: a, overhead: {podFixed: {pods: 1}}}\n",
            "it would not be a valid v1 RuntimeClass: ",
        ),
        (
            "spec: {runtimeHandler: a, overhead: {podFixed: {cpu: much}}}\n",
            "it would not be a valid v1 RuntimeClass: ",
        ),
        (
            "spec: {runtimeHandler: a, scheduling: {nodeSelector: {'not a key!': x}}}\n",
            "it would not be a valid v1 RuntimeClass: scheduling.nodeSelector: Invalid value",
        ),
        (f"spec: {{runtimeHandler: {'k' * 64}}}\n", "has no legal name: must be no more than 63"),
        ("spec: {runtimeHandler: '...'}\n", "the handler '...' has no legal name"),
        ("spec:\n  <<: {runtimeHandler: a}\n", "change it by hand"),
    ],
)
def test_a_class_that_would_be_invalid_stays_as_it_is(text: str, reason: str) -> None:
    before = f"apiVersion: node.k8s.io/v1alpha1\n{_HEAD}{text}"
    after, findings = _migrated(before)
    assert after == before
    assert len(findings) == 1
    assert findings[0].startswith("(RuntimeClass/kata): refused: ")
    assert reason in findings[0]


@pytest.mark.parametrize("name", ["legacy", "Kata", "a_b", "''"])
def test_a_class_whose_name_is_illegal_stays_as_it_is(name: str) -> None:
    before = (
        "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\n"
        f"metadata: {{name: {name}}}\nhandler: a\n"
    )
    after, findings = _migrated(before)
    assert after == before
    assert "metadata.name: " in findings[0]


def test_a_valid_class_of_v1_is_not_looked_at_further() -> None:
    text = f"apiVersion: node.k8s.io/v1\n{_HEAD}handler: kata\nunknown: field\n"
    assert _migrated(text) == (text, [])


def test_the_definition_of_the_alpha_is_to_be_deleted() -> None:
    text = (
        "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\n"
        "metadata: {name: runtimeclasses.node.k8s.io}\n"
    )
    after, findings = _migrated(text)
    assert after == text
    assert "delete the CRD runtimeclasses.node.k8s.io after the classes exist in v1" in findings[0]

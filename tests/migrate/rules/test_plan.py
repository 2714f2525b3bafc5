"""Plans over many texts: what stays the same, what is never made, what hostile input costs."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.names import dns_subdomain_errors
from moorage.api.runtime_group import RuntimeClass
from moorage.api.yaml_values import YamlError, parse_documents
from moorage.migrate.rules import (
    Meaning,
    Options,
    OutputError,
    Plan,
    RenameError,
    Severity,
    Source,
    make_plan,
)
from moorage.runtimeclass.validation import class_errors
from tests.migrate.rules import documents
from tests.migrate.rules.yaml_styles import written

_OPTIONS = Options(default_handler="runc")


def _plan(text: str, name: str = "a.yaml", options: Options = _OPTIONS) -> Plan:
    return make_plan([Source(name, text)], {}, options)


def _again(sources: list[Source], plan: Plan) -> Plan:
    after = [Source(source.name, plan.changed.get(source.name, source.text)) for source in sources]
    return make_plan(after, dict(plan.outputs), _OPTIONS)


_TEXTS = st.lists(written(documents.sound()), min_size=1, max_size=4)


@given(_TEXTS, _TEXTS)
def test_a_second_migration_changes_nothing(
    first: list[tuple[str, list[str]]], second: list[tuple[str, list[str]]]
) -> None:
    sources = [
        Source("a.yaml", "---\n".join(text for text, _ in first)),
        Source("b.yaml", "---\n".join(text for text, _ in second)),
    ]
    plan = make_plan(sources, {}, _OPTIONS)
    again = _again(sources, plan)
    assert not again.changed
    assert not again.outputs


@given(_TEXTS, st.integers(0, 3))
def test_a_migration_that_was_interrupted_is_completed_by_the_next(
    texts: list[tuple[str, list[str]]], written_files: int
) -> None:
    sources = [Source(f"{index}.yaml", text) for index, (text, _) in enumerate(texts)]
    plan = make_plan(sources, {}, _OPTIONS)
    # All output files come before the first change.
    done = dict(list(plan.changed.items())[:written_files])
    after = [Source(source.name, done.get(source.name, source.text)) for source in sources]
    rest = make_plan(after, dict(plan.outputs), _OPTIONS)
    assert not rest.outputs
    assert done | dict(rest.changed) == plan.changed


@given(written(documents.sound()))
def test_every_comment_is_kept(case: tuple[str, list[str]]) -> None:
    text, comments = case
    after = _plan(text).changed.get("a.yaml", text)
    for comment in set(comments):
        lines = [line.strip() for line in after.splitlines()]
        kept = sum(line.endswith(comment) for line in lines)
        assert kept >= comments.count(comment), comment


@given(_TEXTS)
def test_a_document_without_changes_is_kept_byte_for_byte(
    texts: list[tuple[str, list[str]]],
) -> None:
    whole = "---\n".join(text for text, _ in texts)
    after = _plan(whole).changed.get("a.yaml", whole)
    pieces = re.split(r"(?m)^---\n", after)
    assert len(pieces) == len(texts)
    for (before, _), piece in zip(texts, pieces, strict=True):
        if parse_documents(before) == parse_documents(piece):
            assert piece == before


@given(written(documents.sound()))
def test_lines_are_changed_only_where_the_document_is(case: tuple[str, list[str]]) -> None:
    text, _ = case
    after = _plan(text).changed.get("a.yaml", text)
    changed = [line for line in text.splitlines() if line.strip() not in after]
    # The most: apiVersion, spec, handler, four annotations and what held them.
    assert len(changed) <= 12


@given(st.lists(written(documents.classes()), min_size=1, max_size=4))
def test_a_class_becomes_valid_or_stays_as_it_is(texts: list[tuple[str, list[str]]]) -> None:
    whole = "---\n".join(text for text, _ in texts)
    after = _plan(whole).changed.get("a.yaml", whole)
    for old, new in zip(parse_documents(whole), parse_documents(after), strict=True):
        if old == new:
            continue
        assert new["apiVersion"] == "node.k8s.io/v1"
        assert set(new) <= {"apiVersion", "kind", "metadata", "handler", "overhead", "scheduling"}
        runtime_class = msgspec.convert(new, RuntimeClass)
        assert not class_errors(runtime_class)
        assert not dns_subdomain_errors(runtime_class.metadata.name)
        assert new.get("overhead") == (old.get("overhead") or old.get("spec", {}).get("overhead"))


@given(st.lists(documents.broken(), min_size=1, max_size=3))
def test_wrong_types_lead_to_findings_and_never_to_a_failure(broken: list[Any]) -> None:
    sources = [Source("a.yaml", "\n---\n".join(map(json.dumps, broken)))]
    plan = make_plan(sources, {}, _OPTIONS)
    again = _again(sources, plan)
    assert not again.changed
    assert not again.outputs
    for finding in plan.findings:
        assert "\n" not in str(finding)
        assert len(str(finding)) < 1000


@given(written(documents.sound()), st.integers(0, 400))
def test_a_half_written_file_is_refused_or_stays_consistent(
    case: tuple[str, list[str]], length: int
) -> None:
    text = case[0][:length]
    plan = _plan(text)
    try:
        parse_documents(text)
    except YamlError:
        assert not plan.changed
        assert [finding.severity for finding in plan.findings] == [Severity.REFUSED]
    else:
        parse_documents(plan.changed.get("a.yaml", text))


_DEEP = "[" * 5000
_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
_POD = 'metadata: {annotations: {io.kubernetes.cri.untrusted-workload: "true"}}\n'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.yaml", _DEEP, "exceeded max depth of 100"),
        ("a.yaml", f"apiVersion: v1\nkind: Pod\nspec: {_DEEP}", "exceeded max depth of 100"),
        ("a.yaml", _BOMB, "excessive aliasing"),
        ("a.yaml", "- x\n" * 150_001, "more than 150000 values"),
        ("a.json", '{"kind": "RuntimeClass", "apiVersion": ', "it is not YAML: line 2"),
        ("a.yaml", "kind: RuntimeClass\n\tapiVersion: x", "it is not YAML: line 2"),
        ("a.yaml", "a: \x00", "it is not YAML"),
        ("config.toml", "a = " + "[" * 3000, "nested deeper than 64 levels"),
        ("config.toml", ".".join(["a"] * 60_000) + " = 1", "line 1: a key has more than 16 parts"),
        ("config.toml", "[plugins", "it is not TOML"),
        ("crio.conf", "a = 1\na = 2", "it is not TOML"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_hostile_text_is_refused_with_the_reason(name: str, text: str, reason: str) -> None:
    plan = _plan(text, name)
    assert not plan.changed
    (finding,) = plan.findings
    assert finding.severity is Severity.REFUSED
    assert reason in str(finding)
    assert len(str(finding)) < 300


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.yaml", "kind: RuntimeClass # " + "x" * 9_000_000, "more than 8 MiB"),
        ("config.toml", "# " + "x" * 300_000, "more than 256 KiB"),
        ("a.yaml", "kind: Pod\nspec: {{ .Values.spec }}", "Helm template"),
        ("a.yaml", 'kind: Pod\n{{ include "x" . }}', "Helm template"),
        ("a.yaml", "kind: Pod\n{% if x %}\n", "it is a template, not YAML"),
        ("a.yaml", "just: values", "nothing that moor migrate knows"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_not_migrated_is_skipped_with_the_reason(name: str, text: str, reason: str) -> None:
    plan = _plan(text, name)
    (finding,) = plan.findings
    assert finding.severity is Severity.SKIPPED
    assert reason in str(finding)
    assert not plan.is_refused


def test_expressions_of_kyverno_are_no_template() -> None:
    text = json.dumps({"kind": "X", "apiVersion": "v1", "key": "{{ request.object.spec }}"})
    assert not _plan(text).findings


def test_an_alias_that_shares_the_value_is_not_edited() -> None:
    text = (
        "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\n"
        "metadata: {name: a, labels: {handler: &h a.b}}\nhandler: *h\n"
    )
    plan = _plan(text)
    assert not plan.changed
    assert [str(finding) for finding in plan.findings] == [
        "a.yaml (RuntimeClass/a): refused: its entry handler comes from an alias or a merge; write "
        "it out first"
    ]


def test_an_anchor_that_others_use_is_not_edited() -> None:
    text = (
        "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\n"
        "handler: &h a.b\nmetadata: {name: *h}\n"
    )
    plan = _plan(text)
    assert not plan.changed
    assert plan.is_refused


def test_what_can_be_edited_is_edited_beside_what_cannot() -> None:
    text = (
        "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: a\n"
        "---\napiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: &m {name: &n b}\n"
        "handler: *n\n"
        "---\napiVersion: &v node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: c}\n"
        "handler: c\nextra: *v\n"
    )
    plan = _plan(text)
    versions = [document["apiVersion"] for document in parse_documents(plan.changed["a.yaml"])]
    assert versions == ["node.k8s.io/v1", "node.k8s.io/v1", "node.k8s.io/v1beta1"]
    assert [finding.place for finding in plan.findings] == ["a.yaml (RuntimeClass/c)"]


def test_objects_of_a_list_are_migrated_one_by_one() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n"
        "- apiVersion: node.k8s.io/v1alpha1\n  kind: RuntimeClass\n  metadata: {name: a}\n"
        "  spec:  # nested\n    runtimeHandler: a.b\n"
        "- apiVersion: node.k8s.io/v1beta1\n  kind: RuntimeClass\n  metadata: {name: b}\n"
        "  handler: b\n"
    )
    assert _plan(text).changed["a.yaml"] == (
        "apiVersion: v1\nkind: List\nitems:\n"
        "- apiVersion: node.k8s.io/v1\n  kind: RuntimeClass\n  metadata: {name: a}\n"
        "  # nested\n  handler: a-b\n"
        "- apiVersion: node.k8s.io/v1\n  kind: RuntimeClass\n  metadata: {name: b}\n"
        "  handler: b\n"
    )


def _class(name: str, handler: str) -> str:
    return (
        "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\n"
        f"metadata:\n  name: {name}\nspec:\n  runtimeHandler: {handler}\n"
    )


def test_handlers_that_would_collide_are_refused_with_both_names() -> None:
    sources = [
        Source("a.yaml", _class("a", "kata.qemu")),
        Source("b.yaml", _class("b", "kata-qemu")),
    ]
    plan = make_plan(sources, {}, _OPTIONS)
    assert list(plan.changed) == ["b.yaml"]
    (finding,) = plan.findings
    assert str(finding) == (
        "a.yaml (RuntimeClass/a): refused: the handlers 'kata-qemu' and 'kata.qemu' would share "
        "the name 'kata-qemu'; give each a name with --rename OLD=NEW, the same one if they are "
        "one handler"
    )


def test_a_rename_of_the_users_settles_a_collision_and_is_remembered() -> None:
    sources = [
        Source("a.yaml", _class("a", "kata.qemu")),
        Source("b.yaml", _class("b", "kata-qemu")),
    ]
    options = Options(renames={"kata.qemu": "kata-two"})
    plan = make_plan(sources, {}, options)
    assert "handler: kata-two" in plan.changed["a.yaml"]
    assert '"kata.qemu" = "kata-two"' in plan.outputs["renames.toml"]
    later = make_plan([Source("c.yaml", _class("c", "kata.qemu"))], plan.outputs, Options())
    assert "handler: kata-two" in later.changed["c.yaml"]


@pytest.mark.parametrize("renames", [{"a": "B"}, {"a": "b", "b": "c"}, {"a": "b.c"}])
def test_renames_that_cannot_be_are_refused(renames: dict[str, str]) -> None:
    with pytest.raises(RenameError):
        make_plan([], {}, Options(renames=renames))


@pytest.mark.parametrize(
    "existing",
    [{"renames.toml": "a = "}, {"renames.toml": "a = 1"}, {"policies.yaml": "a: [", "x.toml": ""}],
)
def test_output_files_that_cannot_be_read_are_named(existing: dict[str, str]) -> None:
    name = next(iter(existing))
    with pytest.raises(OutputError, match=name):
        make_plan([], existing, Options())


def test_a_class_for_annotations_is_made_once_and_only_where_none_is_known() -> None:
    pod = f"apiVersion: v1\nkind: Pod\nspec: {{containers: []}}\n{_POD}"
    plan = make_plan([Source("a.yaml", pod), Source("b.yaml", pod)], {}, _OPTIONS)
    assert plan.outputs["runtimeclasses.yaml"] == (
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: untrusted\n"
        "handler: untrusted\n"
    )
    known = Source("c.yaml", _class("untrusted", "runsc"))
    assert not make_plan([Source("a.yaml", pod), known], {}, _OPTIONS).outputs


def test_a_class_that_the_user_chose_is_not_made_up() -> None:
    pod = f"apiVersion: v1\nkind: Pod\nspec: {{containers: []}}\n{_POD}"
    plan = _plan(pod, options=Options(classes={Meaning.UNTRUSTED: "gvisor"}))
    assert "runtimeClassName: gvisor" in plan.changed["a.yaml"]
    assert not plan.outputs
    assert "no RuntimeClass 'gvisor' is among the files" in str(plan.findings[0])


def test_a_thousand_workloads_in_one_file_are_all_changed() -> None:
    pod = f"apiVersion: v1\nkind: Pod\nspec:\n  containers: []\n{_POD}"
    text = "---\n".join([pod] * 1000)
    after = _plan(text).changed["a.yaml"]
    assert after.count("runtimeClassName: untrusted") == 1000

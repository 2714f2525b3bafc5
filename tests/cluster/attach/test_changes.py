"""Changes: what an apply does to an object, and what no value asks for any more."""

from __future__ import annotations

from typing import Any

from moorage.cluster.attach.changes import Verb, change_of, stale

APPLIED = [{"manager": "moorage-attach", "operation": "Apply"}]


def config(name: str = "c", data: str = "1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "data": {"k": data},
    }


def test_an_object_that_is_not_there_is_created() -> None:
    change = change_of(config(), None, config())
    assert change.verb is Verb.CREATE
    assert change.diff.startswith("--- /dev/null\n+++ ConfigMap ns/c\n")


def test_what_the_server_keeps_for_itself_is_no_change() -> None:
    before = config(resourceVersion="1", managedFields=[], uid="u")
    after = config(resourceVersion="1", managedFields=APPLIED, uid="u") | {"status": {"x": 1}}
    assert change_of(config(), before, after).verb is Verb.KEEP


def test_a_change_is_shown_as_its_lines() -> None:
    change = change_of(config(data="2"), config(), config(data="2"))
    assert change.verb is Verb.CHANGE
    lines = change.diff.splitlines()
    assert [line for line in lines if line[0] in "+-" and line[:3] not in ("---", "+++")] == [
        '-  k: "1"',
        '+  k: "2"',
    ]


def test_what_attach_made_and_no_value_asks_for_is_removed() -> None:
    present = [
        config("kept", managedFields=APPLIED),
        config("gone", managedFields=APPLIED),
        config("of others", managedFields=[{"manager": "kubectl", "operation": "Apply"}]),
    ]
    removed = list(stale(present, [config("kept")]))
    assert [(change.verb, change.obj["metadata"]["name"]) for change in removed] == [
        (Verb.REMOVE, "gone")
    ]

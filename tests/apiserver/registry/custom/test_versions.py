"""Versions of a definition: marks, views, and what is remembered of conversions."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from moorage.api.errors import TooLargeError
from moorage.apiserver.registry.custom.definition import CustomKind, kinds_of
from moorage.apiserver.registry.custom.versions import Conversions, SeenObjects
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value

STRING = {"type": "string"}


def definition(*schemas: dict[str, Any], strategy: str = "None") -> dict[str, Any]:
    versions = [
        {"name": f"v{number}", "served": True, "storage": number == 1,
         "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}
        for number, properties in enumerate(schemas, 1)
    ]  # fmt: skip
    webhook = {"clientConfig": {"url": "https://x/"}, "conversionReviewVersions": ["v1"]}
    names = {"plural": "things", "kind": "Thing"}
    return {
        "metadata": {"name": "things.x.io", "uid": "1"},
        "spec": {"group": "x.io", "scope": "Cluster", "names": names, "versions": versions,
                 "conversion": {"strategy": strategy, "webhook": webhook}},
        "status": {"acceptedNames": names, "storedVersions": ["v1"]},
    }  # fmt: skip


async def _unasked(config: object, body: bytes, *, most_bytes: int) -> bytes:
    raise AssertionError(f"asked {config} {body!r} for {most_bytes}")


def kinds(*schemas: dict[str, Any], strategy: str = "None") -> CustomKind:
    conversions = Conversions(asyncio.get_running_loop())
    return kinds_of(definition(*schemas, strategy=strategy), conversions, _unasked)


def item(obj: dict[str, Any], mark: str) -> Stored:
    return StoredFactory(())("things.x.io/a", 7, to_value({"metadata": {"name": "a"}, **obj}, mark))


async def test_what_has_the_mark_of_the_view_is_sent_as_it_is() -> None:
    (first, second) = kinds({"a": STRING}, {"a": STRING}).kinds
    assert first.view is not None
    assert second.view is not None
    stored = item({"a": "1"}, first.view.mark)
    assert (stored.mark, stored.obj["a"]) == (first.view.mark, "1")
    # Both versions have the same structure, so the same bytes.
    for view in (first.view, second.view):
        assert view.see_now(stored) is stored
    assert first.view.is_current(stored)


async def test_what_fits_a_former_schema_is_fitted_when_it_is_read() -> None:
    ((kind),) = kinds({"a": STRING, "b": {**STRING, "default": "x"}}).kinds
    assert kind.view is not None
    for mark in ("v1.0123456789abcdef", ""):
        (seen,) = await kind.view.see([item({"a": "1", "old": "2"}, mark)])
        assert seen.obj == {
            "metadata": {"name": "a", "resourceVersion": "7"}, "a": "1", "b": "x",
        }  # fmt: skip
        assert not kind.view.is_current(item({}, mark))


async def test_other_versions_lose_what_the_schema_does_not_name() -> None:
    first, second = kinds({"a": STRING, "b": STRING}, {"a": STRING}).kinds
    assert first.view is not None
    assert second.view is not None
    seen = second.view.see_now(item({"a": "1", "b": "2"}, first.view.mark))
    assert "b" not in seen.obj
    value = await second.view.value_of({"metadata": {"name": "a"}, "a": "1"})
    assert value.startswith(b'{"@":"%b","metadata":' % first.view.mark.encode())


async def test_a_mark_is_not_taken_from_a_body() -> None:
    forged = {"metadata": {"name": "a"}, "@": "v9.x"}
    stored = StoredFactory(())("things.x.io/a", 7, to_value(forged, "v1.y"))
    assert stored.mark == "v1.y"
    assert msgspec.json.decode(b"{" + stored.tail)["@"] == "v9.x"


async def test_a_webhook_is_never_waited_for_on_the_loop() -> None:
    first, _ = kinds({"a": STRING}, {"b": STRING}, strategy="Webhook").kinds
    convert = first.served[1].from_storage
    assert convert is not None
    with pytest.raises(RuntimeError, match=r"View\.run"):
        convert({"metadata": {"name": "a"}})


def test_what_was_seen_is_remembered_within_a_budget() -> None:
    seen = SeenObjects(most_bytes=2000)
    for number in range(9):
        seen.put("v", Stored(f"t/{number}", 1, b"x" * 300, {}, ()))
    kept = [n for n in range(9) if seen.get("v", Stored(f"t/{n}", 1, b"", {}, ()))]
    assert kept == [6, 7, 8]
    assert seen.get("v", Stored("t/8", 1, b"", {}, ()).shown()) is None
    seen.put("v", Stored("t/9", 1, b"before", {}, ()).shown())
    assert seen.get("v", Stored("t/9", 1, b"", {}, ())) is None
    assert seen.get("v", Stored("t/8", 2, b"", {}, ())) is None
    assert seen.get("w", Stored("t/8", 1, b"", {}, ())) is None


async def _converting(config: object, body: bytes, *, most_bytes: int) -> bytes:
    """Answer as a webhook that renames `a` to `b`."""
    del config, most_bytes
    asked = msgspec.json.decode(body)["request"]
    objects = [
        {**{key: obj[key] for key in ("kind", "metadata")}, "apiVersion": "x.io/v2", "b": obj["a"]}
        for obj in asked["objects"]
    ]
    response = {
        "uid": asked["uid"],
        "convertedObjects": objects,
        "result": {"status": "Success"},
    }
    answer = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return msgspec.json.encode({**answer, "response": response})


async def test_events_of_one_object_are_converted_each_as_it_was() -> None:
    source = definition({"a": STRING}, {"b": STRING}, strategy="Webhook")
    conversions = Conversions(asyncio.get_running_loop())
    first, second = kinds_of(source, conversions, _converting).kinds
    assert first.view is not None
    assert second.view is not None
    factory, mark = StoredFactory(()), first.view.mark
    before, after = (
        factory("things.x.io/a", revision, to_value({"metadata": {"name": "a"}, "a": text}, mark))
        for revision, text in ((7, "old"), (8, "new"))
    )
    # The watcher whose selection it left sees the old object at the new revision.
    left = before.at(8)
    for items in ([before, left, after], [left], [after]):
        seen = [one.obj for one in await second.view.see(items)]
        shown = [(one["b"], one["metadata"]["resourceVersion"]) for one in seen]
        assert shown == [(one.obj["a"], str(one.revision)) for one in items]


LARGE = {"type": "array", "items": {"type": "object", "properties": {
    "a": {**STRING, "default": "x" * 200_000}}}}  # fmt: skip


async def test_what_defaults_add_to_an_object_that_is_read_is_bounded() -> None:
    ((kind),) = kinds({"l": LARGE}).kinds
    assert kind.view is not None
    with pytest.raises(TooLargeError, match="add more than"):
        await kind.view.see([item({"l": [{}] * 5000}, "")])
    with pytest.raises(TooLargeError, match="add more than"):
        kind.view.see_now(item({"l": [{}] * 5000}, ""))


async def test_what_defaults_add_to_a_list_that_is_read_is_bounded() -> None:
    ((kind),) = kinds({"l": LARGE}).kinds
    assert kind.view is not None
    grown = [item({"l": [{}] * 10}, "") for _ in range(40)]
    assert len(await kind.view.see(grown[:20])) == 20
    with pytest.raises(TooLargeError, match="ask for fewer with `limit`"):
        await kind.view.see(grown)

"""Site of the web page: paths, rights, and values that are hostile."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.apiserver.web_page import Site
from moorage.apiserver.web_page.objects import POD_ROWS
from moorage.wire.client.resources import EVENTS, NODES, PODS, RUNTIME_CLASSES, Resource
from tests.apiserver.web_page.test_views import node, runtime_class

_HOSTILE = "<script>alert(1)</script>\"'&\x00"


class FakeReader:
    """Lists given objects, by plural; lacks the resources that it was not given."""

    def __init__(self, **objects: list[Any]) -> None:
        self._objects = objects
        self.forbidden: set[str] = set()

    async def visit(
        self,
        resource: Resource[Any],
        take: Callable[[Any], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        del namespace
        uid = field_selector.removeprefix("involvedObject.uid=")
        if resource.plural in self.forbidden:
            raise ForbiddenError(f"cannot list {resource.plural}")
        if resource.plural not in self._objects:
            raise NotFoundError("no such resource")
        for each in self._objects[resource.plural]:
            raw = msgspec.to_builtins(each)
            if not uid or raw["involvedObject"]["uid"] == uid:
                take(msgspec.convert(raw, resource.type))

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        found: list[Any] = []
        await self.visit(resource, found.append, namespace)
        for each in found:
            if each.metadata.name == name:
                return each
        raise NotFoundError.of(resource.plural, name)


class _Outline(HTMLParser):
    """The elements of a page, and whether each that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = defaultdict(int)
        self.unscoped = 0
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.unscoped += tag == "th" and "scope" not in dict(attrs)
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def _pod(**fields: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p", "namespace": "default", "uid": "u1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "runtime.moorage.dev/class-choice": "fitted",
                "runtime.moorage.dev/class-choice-reason": _HOSTILE,
            },
        },
        "spec": {"runtimeClassName": "sandboxed", "nodeName": "n1"},
        "status": {
            "phase": "Running",
            "message": _HOSTILE,
            "conditions": [_true("PodScheduled", "00:00:01"), _true("Ready", "00:00:03")],
            "containerStatuses": [{"name": "c", "image": _HOSTILE, "state": {"running": {}}}],
        },
    } | fields  # fmt: skip


def _true(type_: str, time: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "lastTransitionTime": f"2026-01-01T{time}Z"}


def _event(uid: str, reason: str) -> dict[str, Any]:
    return {"involvedObject": {"uid": uid}, "reason": reason, "message": _HOSTILE, "type": "Normal"}


@pytest.fixture
def reader() -> FakeReader:
    return FakeReader(
        pods=[_pod()],
        nodes=[node("n1", "gvisor")],
        runtimeclasses=[runtime_class("sandboxed", "gvisor")],
        events=[_event("u1", "Pulled"), _event("u2", "Elsewhere")],
    )


@pytest.mark.parametrize(
    "path",
    ["/", "/classes/sandboxed", "/classes/-", "/namespaces/default/pods/p"],
)
async def test_pages_are_whole_and_escape_what_they_show(path: str, reader: FakeReader) -> None:
    reader._objects["pods"].append(_pod(spec={}))
    page = await Site().page(path, reader)
    text = page.body.decode()
    outline = _Outline(text)
    assert outline.counts["script"] == 0
    assert outline.counts["h1"] == outline.counts["main"] == 1
    assert outline.unscoped == 0
    assert '<html lang="en">' in text
    assert not re.search(r'(src|href)="(https?:)?//', text)


async def test_a_pods_page_shows_class_choice_steps_and_its_own_events(reader: FakeReader) -> None:
    page = await Site().page("/namespaces/default/pods/p", reader)
    text = page.body.decode()
    for shown in (
        "sandboxed",
        "gvisor",
        "fitted",
        "schedule",
        "Pulled",
        "running",
        "3 s (± 1 s) in all",
    ):
        assert shown in text
    assert "Elsewhere" not in text


async def test_of_very_many_events_the_latest_are_shown_in_part(reader: FakeReader) -> None:
    reader._objects["events"] = [
        {**_event("u1", f"r{number:03}"), "message": "x" * 100_000,
         "lastTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        for number in range(300)
    ]  # fmt: skip
    text = (await Site().page("/namespaces/default/pods/p", reader)).body.decode()
    assert re.findall(r"<td>(r\d\d\d)</td>", text) == [f"r{number}" for number in range(250, 300)]
    assert len(text) < 100_000


async def test_a_pods_steps_are_no_finer_than_they_are_known(reader: FakeReader) -> None:
    measured = _true("runtime.moorage.dev/StartPhases", "00:00:02")
    measured["message"] = '{"seen":"2026-01-01T00:00:02.400Z","sandbox":300.0,"start":100.0}'
    conditions = [_true("PodScheduled", "00:00:02"), measured, _true("Ready", "00:00:03")]
    reader._objects["pods"] = [_pod(status={"phase": "Running", "conditions": conditions})]
    text = (await Site().page("/namespaces/default/pods/p", reader)).body.decode()
    assert "400 ms on the node." in text
    rows = re.findall(
        r'<th scope="row">(\w+)</th><td class="number">([^<]*)</td>\s*<td>(.*)</td>', text
    )
    assert [(name, length, re.sub("<.*>", "", share).strip()) for name, length, share in rows] == [
        ("schedule", "2 s (± 1 s)", "\N{EN DASH}"),
        ("deliver", "within 1 s", "\N{EN DASH}"),
        ("sandbox", "300 ms", "75.0 %"),
        ("start", "100 ms", "25.0 %"),
    ]


async def test_what_the_user_may_not_list_is_named_and_left_out(reader: FakeReader) -> None:
    reader.forbidden = {NODES.plural, POD_ROWS.plural}
    text = (await Site().page("/", reader)).body.decode()
    assert "You may not read nodes, pods" in text
    assert "sandboxed" in text


@pytest.mark.parametrize(
    "path",
    [
        "",
        "//",
        "/classes/",
        "/classes/none",
        "/classes/a/b",
        "/namespaces/default/pods/none",
        "/x",
        # What would be another path, or a query, of the API server.
        "/namespaces/default/pods/.",
        "/namespaces/default/pods/..",
        "/namespaces/../pods/p",
        "/namespaces/default/pods/?watch=true",
        "/namespaces/default/pods/p?a",
        "/namespaces/a%/pods/p",
    ],
)
async def test_other_paths_are_not_found(path: str, reader: FakeReader) -> None:
    with pytest.raises(NotFoundError):
        await Site().page(path, reader)


async def test_a_pod_that_may_not_be_read_is_forbidden(reader: FakeReader) -> None:
    reader.forbidden = {PODS.plural}
    with pytest.raises(ForbiddenError):
        await Site().page("/namespaces/default/pods/p", reader)


async def test_what_may_not_be_read_is_unknown_and_not_absent(reader: FakeReader) -> None:
    reader.forbidden = {NODES.plural, POD_ROWS.plural}
    text = (await Site().page("/", reader)).body.decode()
    assert "on no node" not in text
    assert "<td>unknown</td>" in re.sub(r"\s*(</?td>)\s*", r"\1", text)
    assert "You may not list the nodes." in text
    a_class = (await Site().page("/classes/sandboxed", reader)).body.decode()
    assert "<dt>Nodes with the handler</dt><dd>unknown</dd>" in a_class
    reader.forbidden = {RUNTIME_CLASSES.plural}
    assert "does not exist" not in (await Site().page("/", reader)).body.decode()
    with pytest.raises(ForbiddenError):
        await Site().page("/classes/other", reader)


async def test_a_pod_is_shown_without_the_rights_for_its_class_and_events(
    reader: FakeReader,
) -> None:
    reader.forbidden = {RUNTIME_CLASSES.plural, EVENTS.plural}
    text = (await Site().page("/namespaces/default/pods/p", reader)).body.decode()
    assert "You may not read events, runtimeclasses" in text
    assert "There are no events" not in text


async def test_the_style_sheet_is_the_only_other_file() -> None:
    page = await Site().page("/style.css", FakeReader())
    assert page.content_type.startswith("text/css")
    assert b"body" in page.body

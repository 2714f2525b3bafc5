"""Frames, bookmarks and options of watches, without a connection."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request

from moorage.api.errors import BadRequestError
from moorage.apiserver.endpoints.negotiation import PARTIAL, TABLE, Representation
from moorage.apiserver.endpoints.watch import (
    Body,
    Chunks,
    WatchStreams,
    WatchTimes,
    options_of,
    response_of,
)
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.storage import QueueBudget, SqliteStore, WatchCache
from tests.clocks import FakeClock

CLASS = next(kind for kind in STORED_KINDS if kind.name == "RuntimeClass")
V1, V1ALPHA1 = CLASS.served[0], CLASS.served[-1]
FACTORY = StoredFactory(STORED_KINDS)
_NOTHING: Any = None
STREAMS = WatchStreams(_NOTHING, Codec(load_schema()), FakeClock(), "store", WatchTimes())


def item(name: str, revision: int) -> Stored:
    value = to_value({"metadata": {"name": name}, "handler": "h"})
    return FACTORY(CLASS.key("", name), revision, value)


def call(served: Any = V1, name: str = "", **query: str) -> Any:
    return SimpleNamespace(
        kind=CLASS,
        served=served,
        query=query,
        target=SimpleNamespace(name=name),
        audit_id="id",
        headers={"X-Flow": "f"},
    )


def frame(made: bytes) -> Any:
    assert made.endswith(b"}\n")
    assert made.count(b"\n") == 1
    return json.loads(made)


def test_frames_of_whole_objects_are_in_the_version_asked_for() -> None:
    new, old = (STREAMS.frame_of(call(served), Representation()) for served in (V1, V1ALPHA1))
    for _ in range(2):
        for type_, revision in (("ADDED", 3), ("MODIFIED", 3), ("MODIFIED", 4)):
            meta = {"resourceVersion": str(revision), "name": "a"}
            assert frame(new(type_, item("a", revision))) == {
                "type": type_,
                "object": {"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1",
                           "metadata": meta, "handler": "h"},
            }  # fmt: skip
            assert frame(old(type_, item("a", revision)))["object"] == {
                "kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1alpha1", "metadata": meta,
                "spec": {"runtimeHandler": "h"},
            }  # fmt: skip
    assert frame(new("ADDED", item("b", 3)))["object"]["metadata"]["name"] == "b"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_frames_of_metadata(version: str) -> None:
    make = STREAMS.frame_of(call(), Representation(as_=PARTIAL, version=version))
    assert frame(make("DELETED", item("a", 3))) == {
        "type": "DELETED",
        "object": {"kind": PARTIAL, "apiVersion": f"meta.k8s.io/{version}",
                   "metadata": {"resourceVersion": "3", "name": "a"}},
    }  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_only_the_first_table_has_columns(version: str) -> None:
    make = STREAMS.frame_of(call(), Representation(as_=TABLE, version=version))
    tables = [frame(make("ADDED", item(name, 3)))["object"] for name in ("a", "b", "c")]
    assert [bool(table.get("columnDefinitions")) for table in tables] == [True, False, False]
    assert [table["rows"][0]["cells"][:2] for table in tables] == [[n, "h"] for n in "abc"]
    assert {table["apiVersion"] for table in tables} == {f"meta.k8s.io/{version}"}
    assert {table["rows"][0]["object"]["kind"] for table in tables} == {PARTIAL}
    whole = STREAMS.frame_of(
        call(includeObject="Object"), Representation(as_=TABLE, version=version)
    )
    row = frame(whole("ADDED", item("a", 3)))["object"]["rows"][0]
    assert (row["object"]["kind"], row["object"]["handler"]) == ("RuntimeClass", "h")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, (False, None, "", "")),
        ({"allowWatchBookmarks": "true", "sendInitialEvents": "true", "resourceVersion": "7",
          "resourceVersionMatch": "NotOlderThan"}, (True, True, "7", "NotOlderThan")),
        ({"sendInitialEvents": "1"}, (False, True, "", "")),
        ({"sendInitialEvents": "false"}, (False, False, "", "")),
        ({"sendInitialEvents": "0"}, (False, False, "", "")),
    ],
)  # fmt: skip
def test_options(query: dict[str, str], expected: tuple[Any, ...]) -> None:
    options = options_of(call(**query))
    assert (
        options.allows_bookmarks, options.sends_initial_events, options.resource_version,
        options.match,
    ) == expected  # fmt: skip
    assert options.selection.is_everything


def test_an_option_that_is_neither_true_nor_false() -> None:
    with pytest.raises(BadRequestError, match="sendInitialEvents: invalid value 'maybe'"):
        options_of(call(sendInitialEvents="maybe"))


@pytest.mark.parametrize(
    ("name", "field_selector", "matching"),
    [("a", "", "a"), ("a", "metadata.name!=b", "a"), ("a", "metadata.name=b", ""),
     ("", "metadata.name=b", "b"), ("", "", "abc")],
)  # fmt: skip
def test_one_object_is_watched_by_its_name(name: str, field_selector: str, matching: str) -> None:
    selection = options_of(call(name=name, fieldSelector=field_selector)).selection
    assert [n for n in "abc" if selection.matches(item(n, 1))] == list(matching)


class Written:
    """A transport that keeps the content of the chunks written to it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, chunk: bytes) -> None:
        length, _, rest = chunk.partition(b"\r\n")
        assert rest[-2:] == b"\r\n"
        assert int(length, 16) == len(rest) - 2
        self.pieces.append(rest[:-2])


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([], []),
        ([10, 20], [30]),
        ([65536, 1], [65536, 1]),
        ([40000, 30000, 30000], [40000, 60000]),
        ([65536, 65535, 1], [65536, 65536]),
        ([65536, 65535, 2], [65536, 65535, 2]),
        ([10, 65537, 5], [10, 65536, 1, 5]),
        ([200000], [65536, 65536, 65536, 3392]),
    ],
)
async def test_frames_are_written_in_pieces(sizes: list[int], pieces: list[int]) -> None:
    frames = [bytes((65 + index,)) * size for index, size in enumerate(sizes)]
    chunks = Chunks()
    for _ in range(2):
        transport = Written()
        request: Any = SimpleNamespace(
            transport=transport, protocol=SimpleNamespace(writing_paused=False)
        )
        await Body(web.StreamResponse(), request, chunks).write(iter(frames))
        assert [len(piece) for piece in transport.pieces] == pieces
        assert b"".join(transport.pieces) == b"".join(frames)


async def test_the_next_watcher_gets_the_same_chunk() -> None:
    chunks = Chunks()
    first = chunks.of([b"a", b"b"])
    assert chunks.of([b"a", b"b"]) is first
    assert chunks.of([b"a", b"c"]) == b"2\r\nac\r\n"


async def test_frames_for_a_client_that_is_gone_are_refused() -> None:
    protocol = SimpleNamespace(transport=None, writing_paused=False)
    request: Any = SimpleNamespace(transport=None, protocol=protocol)
    assert not Body(web.StreamResponse(), request, Chunks()).is_ready()
    with pytest.raises(ConnectionResetError):
        await Body(web.StreamResponse(), request, Chunks()).write([b"a"])


def test_the_head_of_a_watch() -> None:
    headers = response_of(call(), Representation()).headers
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-cache, private"
    assert headers["Audit-Id"] == "id"
    assert headers["X-Flow"] == "f"
    assert "Warning" not in headers
    protobuf = response_of(call(), Representation(Media.PROTOBUF)).headers["Content-Type"]
    assert protobuf == "application/vnd.kubernetes.protobuf;stream=watch"
    old = next(kind for kind in STORED_KINDS for served in kind.served if served.warning)
    served = next(entry for entry in old.served if entry.warning)
    assert (
        response_of(call(served), Representation()).headers["Warning"]
        == f'299 - "{served.warning}"'
    )


@pytest.mark.parametrize("is_end", [False, True])
@pytest.mark.parametrize(
    ("form", "kind", "api_version"),
    [
        (Representation(), "RuntimeClass", "node.k8s.io/v1"),
        (Representation(as_=PARTIAL), PARTIAL, "meta.k8s.io/v1"),
        (Representation(as_=PARTIAL, version="v1beta1"), PARTIAL, "meta.k8s.io/v1beta1"),
        (Representation(as_=TABLE), "Table", "meta.k8s.io/v1"),
        (Representation(as_=TABLE, version="v1beta1"), "Table", "meta.k8s.io/v1beta1"),
    ],
)
def test_bookmarks(form: Representation, kind: str, api_version: str, is_end: bool) -> None:
    wire = frame(STREAMS.bookmark(call(), form, 7, is_end_of_initial=is_end))
    assert wire["type"] == "BOOKMARK"
    obj = wire["object"]
    assert (obj["kind"], obj["apiVersion"]) == (kind, api_version)
    marks = [obj["metadata"]]
    if form.as_ == TABLE:
        marks = [row["object"]["metadata"] for row in obj["rows"]]
        assert obj["metadata"] == {"resourceVersion": "7"}
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if is_end else {}
    assert marks == [{"resourceVersion": "7", **annotations}]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_watch_that_breaks_is_forgotten(tmp_path: Path, is_slow: bool) -> None:
    ended: list[str] = []
    async with SqliteStore(tmp_path / "s.db") as store:
        cache: WatchCache[Stored] = WatchCache(store, FACTORY, budget=QueueBudget(10))
        await cache.load()

        async def put(name: str) -> None:
            await store.put(CLASS.key("", name), b'{"metadata":{"name":"a"},"handler":"h"}', 0)

        class Broken(StreamWriter):
            async def write_headers(self, *_: Any) -> None:
                for name in "abc" if is_slow else ():
                    await put(name)
                raise ConnectionResetError

        writer: Any = Broken(_NOTHING, _NOTHING)
        streams = WatchStreams(
            cache, Codec(load_schema()), FakeClock(), "store", WatchTimes(overflow_grace_s=0.005)
        )
        asked = call(timeoutSeconds="5")
        asked.stream_form, asked.namespace = Representation, ""
        transport: Any = SimpleNamespace(
            abort=lambda: ended.append("abort"), get_extra_info=lambda *_: None
        )
        asked.http = make_mocked_request("GET", "/", writer=writer, transport=transport)
        response = await streams.serve(asked)
        assert response.headers["Moorage-Store"] == "store"
        await put("d")
        assert cache.queued_bytes == 0
        # The connection may serve other requests.
        await asyncio.sleep(0.02)
        assert ended == []

"""Events: recorded once, counted when they repeat, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from moorage.api.clock import format_time
from moorage.api.meta import ObjectReference
from moorage.api.names import dns_subdomain_errors
from moorage.wire.client import recorder as recorder_module
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import NODES, PODS
from moorage.wire.client.rest import Client
from tests.clocks import FakeClock
from tests.wire.client.fake_api import answer, refusal
from tests.wire.streaming.servers import serving

POD = ObjectReference(kind="Pod", api_version="v1", namespace="ns", name="p", uid="uid-p")
NODE = ObjectReference(kind="Node", api_version="v1", name="n", uid="uid-n")


class Journal:
    """A recorder, and the server that writes its events down."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events: dict[str, dict[str, Any]] = {}
        self.failures: list[Callable[[], web.Response]] = []
        self.recorder: EventRecorder

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        if self.failures:
            return self.failures.pop(0)()
        if request.method == "POST":
            name = body["metadata"]["name"]
            self.events[f"{request.path}/{name}"] = body
            return answer(body, 201)()
        event = self.events.get(request.path)
        if event is None:
            return refusal(404, "NotFound")()
        event |= body
        return answer(event)()

    def record(self, reason: str = "Pulled", message: str = "done", about: ObjectReference = POD,
               type_: str = NORMAL) -> None:  # fmt: skip
        self.recorder.record(about, type_, reason, message)

    async def written(self) -> list[tuple[str, str, int]]:
        """(reason, message, count) of the events so far, once all are sent."""
        flushing = asyncio.create_task(self.recorder.flush())
        async with asyncio.timeout(5):
            while not flushing.done():
                self.clock.advance(0.3)
                await asyncio.sleep(0.001)
        return [
            (event["reason"], event["message"], event["count"]) for event in self.events.values()
        ]


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    journal = Journal()
    async with serving(journal.handle) as url:
        config = ClientConfig(server=url.rstrip("/"))
        async with Client(config, user_agent="test") as client:
            journal.recorder = EventRecorder(client, "kubelet", host="n1", clock=journal.clock)
            task = asyncio.create_task(journal.recorder.run())
            yield journal
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_event_says_what_about_what_and_by_whom(journal: Journal) -> None:
    journal.record("FailedMount", "no such volume", type_=WARNING)
    await journal.written()
    ((path, event),) = journal.events.items()
    assert path.startswith("/api/v1/namespaces/ns/events/p.")
    assert event["kind"] == "Event"
    assert event["type"] == "Warning"
    assert event["involvedObject"]["uid"] == "uid-p"
    assert event["source"] == {"component": "kubelet", "host": "n1"}
    assert event["reportingComponent"] == "kubelet"
    assert event["firstTimestamp"] == event["lastTimestamp"]


@pytest.mark.parametrize("name", ["a" * 253, "system:node", "a" * 236])
async def test_an_event_has_a_name_that_is_one_whatever_the_objects_is(
    journal: Journal, name: str
) -> None:
    journal.record(about=msgspec.structs.replace(NODE, name=name))
    await journal.written()
    (event,) = journal.events.values()
    assert dns_subdomain_errors(event["metadata"]["name"]) == []
    assert event["involvedObject"]["name"] == name
    assert event["metadata"]["name"].startswith(name) == (len(name) == 236)


async def test_an_event_has_the_time_it_was_recorded_however_long_it_waits(
    journal: Journal,
) -> None:
    recorded = format_time(journal.clock.now())
    journal.record()
    journal.clock.advance(40)
    await journal.written()
    journal.clock.advance(40)
    repeated = format_time(journal.clock.now())
    journal.record()
    journal.clock.advance(40)
    await journal.written()
    (event,) = journal.events.values()
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (recorded, repeated)
    assert event["count"] == 2


async def test_a_message_with_bytes_of_a_program_does_not_end_the_recorder(
    journal: Journal,
) -> None:
    journal.record(message="a link leads to /\udcff")
    journal.record(message="next")
    assert [message for _, message, _ in await journal.written()] == [
        "a link leads to /\ufffd", "next",
    ]  # fmt: skip


async def test_events_about_cluster_wide_objects_live_in_the_default_namespace(
    journal: Journal,
) -> None:
    journal.record(about=NODE)
    await journal.written()
    (path,) = journal.events
    assert path.startswith("/api/v1/namespaces/default/events/n.")


async def test_a_repeated_event_is_counted(journal: Journal) -> None:
    for _ in range(3):
        journal.record()
        await journal.written()
        journal.clock.advance(60)
    journal.record(message="another")
    assert await journal.written() == [("Pulled", "done", 3), ("Pulled", "another", 1)]
    first = next(iter(journal.events.values()))
    assert first["lastTimestamp"] > first["firstTimestamp"]


async def test_a_repeated_event_is_one_whatever_became_of_its_object(journal: Journal) -> None:
    for revision in ("7", "8"):
        journal.record(about=msgspec.structs.replace(POD, resource_version=revision))
    assert await journal.written() == [("Pulled", "done", 2)]


async def test_after_a_long_while_it_is_a_new_event(journal: Journal) -> None:
    journal.record()
    await journal.written()
    journal.clock.advance(601)
    journal.record()
    assert [count for *_, count in await journal.written()] == [1, 1]


async def test_expired_event_is_created_again(journal: Journal) -> None:
    journal.record()
    await journal.written()
    journal.events.clear()
    journal.clock.advance(1)
    journal.record()
    assert await journal.written() == [("Pulled", "done", 1)]


async def test_an_object_that_talks_too_much_is_muted_and_others_are_not(journal: Journal) -> None:
    for number in range(40):
        journal.record(message=str(number))
    journal.record(about=NODE)
    written = await journal.written()
    assert len([message for _, message, _ in written if message != "done"]) == 25
    assert ("Pulled", "done", 1) in written
    journal.clock.advance(301)
    journal.record(message="again")
    assert ("Pulled", "again", 1) in await journal.written()


async def test_rejected_event_is_dropped_and_the_next_is_sent(journal: Journal) -> None:
    journal.failures = [refusal(403, "Forbidden"), refusal(500, "InternalError")]
    for message in ("one", "two", "three"):
        journal.record(message=message)
    assert await journal.written() == [("Pulled", "three", 1)]


async def test_a_long_message_is_cut(journal: Journal) -> None:
    journal.record(message="x" * 5000)
    ((_, message, _),) = await journal.written()
    assert len(message) == 1024


async def test_an_event_of_a_component_without_a_host(journal: Journal) -> None:
    journal.recorder._host = ""
    journal.record()
    await journal.written()
    (event,) = journal.events.values()
    assert event["source"] == {"component": "kubelet"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", "")


async def test_every_field_of_an_event(journal: Journal) -> None:
    journal.record("Killing", "stopping")
    await journal.written()
    ((path, event),) = journal.events.items()
    name = path.rpartition("/")[2]
    stamp = event["firstTimestamp"]
    assert event == {
        "kind": "Event", "apiVersion": "v1", "metadata": {"name": name, "namespace": "ns"},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "ns", "name": "p",
                           "uid": "uid-p"},
        "reason": "Killing", "message": "stopping", "type": "Normal",
        "source": {"component": "kubelet", "host": "n1"},
        "reportingComponent": "kubelet", "reportingInstance": "n1",
        "firstTimestamp": stamp, "lastTimestamp": stamp, "count": 1,
    }  # fmt: skip
    # The name is the object's and the time in nanoseconds.
    moment = int(name.removeprefix("p."), 16) / 1e9
    assert abs(moment - journal.clock.now().timestamp()) < 60


async def test_two_events_at_one_moment_have_two_names(journal: Journal) -> None:
    for message in ("one", "two", "three"):
        journal.record(message=message)
    assert len(await journal.written()) == 3


@pytest.mark.parametrize("difference", ["type", "reason", "message", "object"])
async def test_what_makes_two_events(journal: Journal, difference: str) -> None:
    journal.record("A", "m", POD, NORMAL)
    journal.record(
        "B" if difference == "reason" else "A",
        "n" if difference == "message" else "m",
        NODE if difference == "object" else POD,
        WARNING if difference == "type" else NORMAL,
    )
    assert [count for *_, count in await journal.written()] == [1, 1]


async def test_a_count_that_could_not_be_written_is_not_lost_from_the_next(
    journal: Journal,
) -> None:
    journal.record()
    await journal.written()
    journal.failures = [refusal(500, "InternalError")]
    journal.record()
    await journal.written()
    journal.record()
    assert [count for *_, count in await journal.written()] == [2]


async def test_allowances_are_of_one_object_by_uid_or_name(journal: Journal) -> None:
    named = [
        ObjectReference(kind="Pod", namespace=namespace, name=name)
        for namespace, name in (("a", "p"), ("b", "p"), ("a", "q"))
    ]
    for about in (POD, *named):
        for number in range(26):
            journal.record(message=str(number), about=about)
    assert len(await journal.written()) == 4 * 25


async def test_an_allowance_grows_back_slowly_and_not_beyond_its_limit(journal: Journal) -> None:
    def record(count: int) -> int:
        before = journal.recorder._queue.qsize()
        for number in range(count):
            journal.record(message=str(number))
        return journal.recorder._queue.qsize() - before

    assert record(30) == 25
    journal.clock.advance(299)
    assert record(1) == 0
    journal.clock.advance(1)
    assert record(2) == 1
    journal.clock.advance(1_000_000)
    assert record(30) == 25


async def test_a_full_queue_drops_what_is_recorded() -> None:
    client: Any = None
    recorder = EventRecorder(client, "test", clock=FakeClock())
    for number in range(1003):
        about = ObjectReference(kind="Pod", namespace="ns", name="p", uid=str(number))
        recorder.record(about, NORMAL, "R", "m")
    assert recorder._queue.qsize() == 1000


async def test_dropped_events_are_one_line_a_minute_with_their_number(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[int]:
        return [
            record.__dict__["moorage_fields"]["count"]
            for record in caplog.records
            if record.levelname == "WARNING"
        ]

    journal.failures = [refusal(403, "Forbidden")] * 6
    for number in range(4):
        journal.record(message=str(number))
    await journal.written()
    assert logged() == [1]
    journal.clock.advance(60)
    journal.record(message="refused too")
    await journal.written()
    assert logged() == [1, 4]
    journal.record(message="refused at the end")
    await journal.written()
    journal.clock.advance(60)
    journal.record(message="sent")
    await journal.written()
    assert logged() == [1, 4, 1]


async def test_a_recorder_that_ends_says_how_many_events_were_dropped(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.failures = [refusal(500, "InternalError")] * 3
    for number in range(3):
        journal.record(message=str(number))
    await journal.written()
    task = asyncio.create_task(journal.recorder.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    counts = [record.__dict__["moorage_fields"]["count"] for record in caplog.records]
    assert counts == [1, 2]


async def test_events_beyond_a_full_queue_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = None
    recorder = EventRecorder(client, "test", clock=FakeClock())
    for number in range(1010):
        about = ObjectReference(kind="Pod", namespace="ns", name="p", uid=str(number))
        recorder.record(about, NORMAL, "R", "m")
    assert [record.getMessage() for record in caplog.records] == ["events dropped: queue full"]


async def test_what_is_remembered_is_bounded(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_REMEMBERED", 3)
    for number in range(5):
        journal.record(about=msgspec.structs.replace(POD, name=f"p{number}", uid=f"u{number}"))
    await journal.written()
    assert list(journal.recorder._allowances) == ["u2", "u3", "u4"]
    assert [key[0].name for key in journal.recorder._sent] == ["p2", "p3", "p4"]


def test_a_reference_points_at_its_object() -> None:
    pod = PODS.type(metadata=msgspec.convert(
        {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        type(PODS.type().metadata)))  # fmt: skip
    result = reference(PODS, pod, field_path="spec.containers{c}")
    assert result == ObjectReference(
        kind="Pod", api_version="v1", namespace="ns", name="p", uid="u", resource_version="7",
        field_path="spec.containers{c}",
    )  # fmt: skip
    assert reference(NODES, NODES.type()).kind == "Node"

"""The thread for large objects: what goes there, in which order, and who is refused."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from moorage.api.errors import NotFoundError, TooManyRequestsError
from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.request import Request, User
from moorage.apiserver.registry.worker import Worker, is_large


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def _request(user: str = "alice", *, is_large: bool = True) -> Request:
    return Request(user=User(name=user), is_large=is_large)


@pytest.mark.parametrize(
    ("body", "media", "large"),
    [
        (b"{}", Media.JSON, False),
        (b'{"a":"' + b"x" * 60_000 + b'"}', Media.JSON, False),
        (b'{"a":"' + b"x" * 70_000 + b'"}', Media.JSON, True),
        (b"[" + b"{}," * 600 + b"{}]", Media.JSON, True),
        (b"a: " + b"x" * 7_000, Media.YAML, False),
        (b"a: " + b"x" * 9_000, Media.YAML, True),
        (b"k8s\0" + b"x" * 7_000, Media.PROTOBUF, False),
        (b"k8s\0" + b"x" * 9_000, Media.PROTOBUF, True),
    ],
)
def test_which_bodies_are_large(body: bytes, media: Media, large: bool) -> None:
    assert is_large(body, media) is large


async def test_small_requests_stay_on_the_loop(worker: Worker) -> None:
    here = threading.get_ident()
    assert await worker.run(_request(is_large=False), threading.get_ident) == here
    assert await worker.run(_request(), threading.get_ident) != here


class Document:
    """What a step made of a body; it can be referred to weakly."""


@pytest.mark.parametrize("error", [NotFoundError, ValueError, RecursionError])
async def test_a_refused_document_is_freed_without_the_collector(
    worker: Worker, error: type[Exception]
) -> None:
    made: list[weakref.ref[Document]] = []

    def parse(document: Document) -> None:
        try:
            raise KeyError(f"a frame that knows {document}, too")
        except KeyError as cause:
            raise error("no") from cause

    def refuse() -> None:
        document = Document()
        made.append(weakref.ref(document))
        parse(document)

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(error, match="no"):
            await worker.run(_request(), refuse)
        # The thread lets go of its last item when it takes the next one.
        await worker.run(_request(), int)
        assert made[0]() is None
    finally:
        gc.enable()


async def test_a_fault_of_ours_keeps_its_traceback(worker: Worker) -> None:
    def fail() -> None:
        raise TypeError("a fault")

    with pytest.raises(TypeError) as fault:
        await worker.run(_request(), fail)
    assert fault.traceback[-1].name == "fail"


async def test_errors_reach_the_caller(worker: Worker) -> None:
    def fail() -> None:
        raise NotFoundError("no")

    with pytest.raises(NotFoundError):
        await worker.run(_request(), fail)
    assert await worker.run(_request(), int) == 0


async def test_the_loop_goes_on_while_a_step_runs(worker: Worker) -> None:
    release = threading.Event()
    task = asyncio.create_task(worker.run(_request(), release.wait, 30))
    # Were the step on the loop, this line would never be reached.
    await asyncio.sleep(0)
    release.set()
    assert await task


async def test_one_user_cannot_keep_the_thread_to_himself(worker: Worker) -> None:
    release = threading.Event()
    tasks = [asyncio.create_task(worker.run(_request(), release.wait, 30)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequestsError) as refused:
        await worker.run(_request(), int)
    assert refused.value.retry_after_seconds == 1
    other = asyncio.create_task(worker.run(_request("bob"), int))
    release.set()
    assert await asyncio.gather(*tasks) == [True] * 4
    assert await other == 0
    assert await worker.run(_request(), int) == 0


async def test_all_users_together_are_bounded(worker: Worker) -> None:
    release = threading.Event()
    tasks = [
        asyncio.create_task(worker.run(_request(f"user-{number}"), release.wait, 30))
        for number in range(64)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequestsError):
        await worker.run(_request("another"), int)
    release.set()
    await asyncio.gather(*tasks)


async def test_a_caller_that_leaves_gives_up_its_place(worker: Worker) -> None:
    release = threading.Event()
    ran: list[int] = []
    first = asyncio.create_task(worker.run(_request(), release.wait, 30))
    waiting = [asyncio.create_task(worker.run(_request(), ran.append, 1)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await asyncio.gather(first, *[_after(release, worker)]) == [True, 0]
    assert ran == []


async def _after(release: threading.Event, worker: Worker) -> int:
    release.set()
    return await worker.run(_request(), int)


class _Body:
    """Something large; only whether it is kept counts."""


async def test_a_cancelled_step_keeps_nothing_while_another_runs(worker: Worker) -> None:
    release = threading.Event()
    first = asyncio.create_task(worker.run(_request(), release.wait, 30))
    kept = [await _left(worker) for _ in range(10)]
    async with asyncio.timeout(10):
        while any(reference() is not None for reference in kept):
            await asyncio.sleep(0)
            gc.collect()
    release.set()
    assert await first


async def _left(worker: Worker) -> weakref.ref[_Body]:
    """Ask for a step and leave before its turn; what the step was to work on."""
    body = _Body()
    task = asyncio.create_task(worker.run(_request("bob"), id, body))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return weakref.ref(body)

"""What a shim's statistics say, and hostile ones; those of a real shim."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from moorage.engine.handlers import CgroupDriver, ShimOptions
from moorage.engine.handlers.adapters import AdapterError, Task, TaskUsage
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.adapters.shim.keeper import Record, TaskDirectory
from moorage.engine.handlers.adapters.shim.program import Address, ShimProgram, TaskOptions
from moorage.engine.handlers.adapters.shim.service import task_usage
from moorage.engine.handlers.adapters.ttrpc import MOST_BYTES, RESPONSE, Frame, Framing

V1, V2 = "io.containerd.cgroups.v1.Metrics", "io.containerd.cgroups.v2.Metrics"
ENDLESS = (1 << 63) - 4096
METRICS_1 = pb.MetricsV1(
    pids=pb.Count(current=3),
    cpu=pb.CpuV1(usage=pb.CpuTimeV1(total=7_000)),
    memory=pb.MemoryV1(
        total_rss=40,
        total_pgfault=5,
        total_pgmajfault=1,
        total_inactive_file=10,
        usage=pb.MemoryEntry(usage=60, limit=100),
        swap=pb.MemoryEntry(usage=75, limit=150),
    ),
)
METRICS_2 = pb.MetricsV2(
    pids=pb.Count(current=3),
    cpu=pb.CpuV2(usage_usec=7),
    memory=pb.MemoryV2(
        anon=40, inactive_file=10, pgfault=5, pgmajfault=1,
        usage=60, usage_limit=100, swap_usage=15, swap_limit=50,
    ),
)  # fmt: skip
USAGE = TaskUsage(
    cpu_ns=7_000, memory=60, inactive_file=10, rss=40, page_faults=5, major_page_faults=1,
    memory_limit=100, swap=15, swap_limit=50, pids=3,
)  # fmt: skip


def packed(name: str, content: bytes) -> AnyMessage:
    return AnyMessage(type_url=name, value=content)


@pytest.mark.parametrize(
    ("stats", "usage"),
    [
        (packed(V1, METRICS_1.SerializeToString()), USAGE),
        (packed(V2, METRICS_2.SerializeToString()), USAGE),
        (packed(f"type.example/{V2}", METRICS_2.SerializeToString()), USAGE),
        (packed(V1, b""), TaskUsage()),
        (packed(V2, b""), TaskUsage()),
        (
            packed(V1, pb.MetricsV1(memory=pb.MemoryV1(
                usage=pb.MemoryEntry(usage=1, limit=ENDLESS))).SerializeToString()),
            TaskUsage(memory=1, inactive_file=0, rss=0, page_faults=0, major_page_faults=0),
        ),
        (
            packed(V2, pb.MetricsV2(memory=pb.MemoryV2(
                usage=1, usage_limit=(1 << 64) - 1)).SerializeToString()),
            TaskUsage(memory=1, inactive_file=0, rss=0, page_faults=0, major_page_faults=0, swap=0),
        ),
    ],
)  # fmt: skip
def test_both_versions_of_cgroup_metrics(stats: AnyMessage, usage: TaskUsage) -> None:
    assert task_usage(stats) == usage


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        (packed("io.containerd.windows.Statistics", b""), "not cgroup metrics"),
        (packed("x" * 9999, b""), "'x{100}'"),
        (packed("", b""), "not cgroup metrics"),
        (packed(V1, b"\xff\xff"), "are no io.containerd.cgroups.v1.Metrics"),
    ],
)
def test_other_statistics_are_refused(stats: AnyMessage, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        task_usage(stats)


class Shim:
    """A shim whose Wait never returns, and whose answer to Stats is `answer`; None hangs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answer: bytes | None = b""
        self.has_wait = asyncio.Event()
        self.hung_up_on_wait = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing, is_waiting = Framing(), False
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for frame in framing.feed(data):
                    if pb.Request.FromString(frame.content).method == "Wait":
                        is_waiting = True
                        self.has_wait.set()
                    elif self.answer is not None:
                        writer.write(Frame(frame.stream, RESPONSE, self.answer).encode())
        if is_waiting:
            self.hung_up_on_wait.set()
        writer.close()

    def stats(self, stats: AnyMessage) -> None:
        reply = pb.StatsResponse(stats=stats).SerializeToString()
        self.answer = pb.Response(payload=reply).SerializeToString()


@pytest.fixture
async def shim(tmp_path: Path) -> AsyncIterator[Shim]:
    shim = Shim(tmp_path)
    server = await asyncio.start_unix_server(shim.serve, tmp_path / "s")
    yield shim
    server.close()
    await server.wait_closed()


@pytest.fixture
async def adapter(shim: Shim) -> AsyncIterator[tuple[ShimAdapter, Task]]:
    options = ShimOptions(runtime_type="io.containerd.fake.v2")
    adapter = ShimAdapter(
        ShimProgram(shim.root / "program", shim.root / "ev", "/bin"),
        TaskOptions(options, CgroupDriver.CGROUPFS, "/bin", shim.root),
    )
    directory = TaskDirectory(shim.root)
    directory.make()
    directory.write_record(Record(Address(str(shim.root / "s"))))
    yield adapter, Task(id="t1", bundle=shim.root, sandbox_id="s1")
    await adapter.close()


async def test_what_the_shim_counts(shim: Shim, adapter: tuple[ShimAdapter, Task]) -> None:
    shim.stats(packed(V2, METRICS_2.SerializeToString()))
    opened, task = adapter
    assert await opened.usage(task) == USAGE


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff",
        b"x" * (MOST_BYTES + 1),
        pb.Response(payload=b"\xff\xff").SerializeToString(),
        pb.Response(status=pb.CallStatus(code=13, message="no")).SerializeToString(),
        pb.Response(
            status=pb.CallStatus(code=2, message="open /run/x: no such file")
        ).SerializeToString(),
        None,
    ],
    ids=["noise", "huge", "damaged", "refused", "gone", "hanging"],
)
async def test_a_hostile_answer_is_an_error_and_the_task_is_waited_for_all_the_same(
    shim: Shim,
    adapter: tuple[ShimAdapter, Task],
    answer: bytes | None,
) -> None:
    shim.answer = answer
    opened, task = adapter
    opened.stats_deadline_s = 0.05
    waiting = asyncio.create_task(opened.wait(task))
    async with asyncio.timeout(10):
        with pytest.raises(AdapterError):
            await opened.usage(task)
        await shim.has_wait.wait()
    assert not waiting.done()
    assert not shim.hung_up_on_wait.is_set()
    waiting.cancel()

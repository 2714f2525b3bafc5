"""containerd shim adapter, version 2: Kata, WebAssembly, gVisor's shim, and runc's own.

    shim start ─▶ address ─▶ Create · Start · Exec · Wait · Kill · Delete · Shutdown  (ttrpc)
    named pipes ◀─ output, input

A shim is its tasks' parent and outlives the engine. Tasks of a pod share the shim of the pod's
sandbox, which the shim itself decides by the spec's annotations. A restarted engine finds all state
beside the bundle. Source: containerd, "Runtime v2"; its task service.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
    TaskUsage,
    checkpoint_refusal,
)
from moorage.engine.handlers.adapters.fifo_streams import ProcessOutput, make_pipes, pipes_in
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.monitored import CriLog
from moorage.engine.handlers.adapters.shim.delete import end_task, shut_down
from moorage.engine.handlers.adapters.shim.keeper import (
    Record,
    ShimEvents,
    TaskDirectory,
    end_process,
    start_keeper,
    was_memory_cut,
    with_processes,
)
from moorage.engine.handlers.adapters.shim.program import (
    PROCESS,
    RESOURCES,
    ShimProgram,
    TaskOptions,
    pack_json,
)
from moorage.engine.handlers.adapters.shim.service import (
    ShimCalls,
    ShimConnections,
    ShimLostError,
    task_usage,
)
from moorage.engine.handlers.adapters.shim.streams import AttachedStreams, ShimProcess
from moorage.engine.handlers.definition import CgroupDriver, HandlerDefinition, ShimOptions
from moorage.engine.handlers.search_path import search_path
from moorage.linux.trees import remove_tree

log = Log(__name__)

_LAST_OUTPUT_S = 2.0
_UNKNOWN_EXIT = 255


@dataclass(slots=True)
class _RunningTask:
    """A task that this engine process has opened.

    Its record, its pipes by descriptor, and their reader.
    """

    record: Record
    pipes: dict[int, Path]
    output: ProcessOutput


class ShimAdapter:
    """An `Adapter` for one handler, opened by its first call.

    `close`, or leaving an `async with`, releases the shims and tasks, which keep running.
    """

    mounts_rootfs = True
    stats_deadline_s = 2.0

    def __init__(self, program: ShimProgram, options: TaskOptions) -> None:
        self.needs_sandbox = options.handler.needs_sandbox
        self.program = program
        self.options = options
        self.shims = ShimConnections()
        # Apart: a reply to Stats that breaks the protocol must not take a task's Wait with it,
        # whose loss ends the task.
        self._stats_shims = ShimConnections()
        self.events: ShimEvents | None = None
        self._live: dict[str, _RunningTask] = {}
        self._opening = asyncio.Lock()
        self._memory_cut: set[str] = set()
        self._pods: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def of(
        cls, definition: HandlerDefinition, options: ShimOptions, program: Path, directory: Path
    ) -> Self:
        """Return the adapter of a handler; `directory` is for its event socket and runtime state.

        The directory's path must be short: a socket's path has at most 107 bytes.
        """
        path = search_path()
        return cls(
            ShimProgram(program, directory / f"{definition.name}.events", path),
            TaskOptions(
                options,
                definition.cgroup_driver or CgroupDriver.CGROUPFS,
                path,
                directory / f"{definition.name}.state",
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the output pipes, the connections and the event socket."""
        for live in self._live.values():
            live.output.close()
        self._live.clear()
        self.shims.close()
        self._stats_shims.close()
        if self.events is not None:
            await self.events.close()
            self.events = None

    async def create(self, task: Task) -> int:
        """Create the task; deletes it again when that fails. Raises AdapterError."""
        directory = TaskDirectory(task.bundle)
        if await asyncio.to_thread(directory.record) is not None:
            raise AdapterError(f"{task.id} already exists in {task.bundle}")
        try:
            return await self._create(task, directory)
        except BaseException as error:
            shim_error = await asyncio.to_thread(directory.complaint)
            await self._roll_back(task, directory)
            if isinstance(error, ShimLostError) and shim_error:
                raise AdapterError(f"{error}; the shim's last log line: {shim_error}") from error
            if isinstance(error, OSError):
                raise AdapterError(f"{task.bundle}: {error.strerror or error}") from error
            raise

    async def start(self, task: Task) -> None:
        live = await self._known(task)
        request = pb.StartRequest(id=task.id)
        await self.shims.call(
            live.record.address,
            "Start",
            request,
            pb.StartResponse,
            deadline_s=self.options.handler.start_deadline_s,
        )

    async def wait(self, task: Task) -> Exit:
        """Block until the task has ended and its log is complete; records and returns its exit."""
        directory = TaskDirectory(task.bundle)
        how = await asyncio.to_thread(directory.exit)
        if how is not None:
            # The exit is recorded only once the log is complete.
            return how
        live = await self._known(task)
        how = await self._wait(task, live)
        await live.output.finish(_LAST_OUTPUT_S)
        await asyncio.to_thread(directory.write_exit, how)
        return how

    async def exit_of(self, task: Task) -> Exit | None:
        """Return the task's exit, None while it is running. Kills a task whose shim is lost."""
        how = await asyncio.to_thread(TaskDirectory(task.bundle).exit)
        if how is not None:
            return how
        live = await self._known(task)
        try:
            state = await self._state(task, live)
        except ShimLostError:
            return await self.wait(task)
        if state.status != pb.STOPPED:
            return None
        return self._exit(task, live, state.exit_status, state.exited_at)

    async def is_alive(self, task: Task) -> bool:
        try:
            state = await self._state(task, await self._known(task))
        except (TaskNotFoundError, ShimLostError):
            return False
        return state.status not in (pb.STOPPED, pb.UNKNOWN)

    async def kill(self, task: Task, number: signal.Signals) -> None:
        """Send a signal; no-op when the task has ended or its shim is lost."""
        live = await self._known(task)
        request = pb.KillRequest(id=task.id, signal=number)
        try:
            await self.shims.order(live.record.address, "Kill", request)
        except ShimLostError:
            return
        except TaskNotFoundError:
            # Shims return the same error for a process that has ended, which is no error here.
            with contextlib.suppress(ShimLostError):
                await self._state(task, live)
        except AdapterError:
            if await self.is_alive(task):
                raise

    async def delete(self, task: Task) -> None:
        """Kill and delete the task, shut down its shim if it was the last, and remove its files."""
        directory = TaskDirectory(task.bundle)
        record = await asyncio.to_thread(directory.record)
        live = self._live.pop(task.id, None)
        try:
            if record is not None:
                await end_task(task, record, self.shims, self.program)
                async with self._pod(task):
                    is_last = all(
                        other.record.address != record.address for other in self._live.values()
                    )
                    await shut_down(
                        task,
                        record,
                        self.shims,
                        is_last=is_last,
                        deadline_s=self.options.handler.stop_deadline_s,
                    )
        finally:
            if live is not None:
                live.output.close()
            self._memory_cut.discard(task.id)
        if record is not None:
            await end_process(record.keeper)
        await asyncio.to_thread(directory.remove)

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        """Start a process with its own pipes. Raises AdapterError."""
        live = await self._known(task)
        exec_id = secrets.token_hex(8)
        directory = TaskDirectory(task.bundle).path / exec_id
        calls = ShimCalls(self.shims, live.record, task.id, exec_id)
        document = {**process, "terminal": has_terminal}
        try:
            directory.mkdir(mode=0o700)
            pipes = make_pipes(directory, has_stdin=has_stdin, has_stderr=not has_terminal)
            output = ProcessOutput({key: path for key, path in pipes.items() if key}, None)
        except OSError as error:
            await asyncio.to_thread(remove_tree, directory)
            raise AdapterError(f"{directory}: {error.strerror or error}") from error
        begun = ShimProcess(output, pipes.get(0), calls, directory, has_terminal=has_terminal)
        try:
            await self.shims.order(
                live.record.address,
                "Exec",
                pb.ExecRequest(
                    id=task.id,
                    exec_id=exec_id,
                    terminal=has_terminal,
                    **_pipe_fields(pipes),
                    spec=pack_json(PROCESS, msgspec.json.encode(document)),
                ),
            )
            request = pb.StartRequest(id=task.id, exec_id=exec_id)
            await self.shims.call(live.record.address, "Start", request, pb.StartResponse)
        except BaseException:
            await begun.__aexit__()
            raise
        return begun

    async def attach(self, task: Task) -> Streams:
        live = await self._known(task)
        return AttachedStreams(
            live.output,
            live.pipes.get(0),
            ShimCalls(self.shims, live.record, task.id),
            ends_input=task.is_stdin_once,
            has_terminal=task.has_terminal,
        )

    async def resize(self, task: Task, width: int, height: int) -> None:
        live = await self._known(task)
        await ShimCalls(self.shims, live.record, task.id).resize(width, height)

    async def reopen_log(self, task: Task) -> None:
        """Reopen a container's log after rotation. Raises AdapterError."""
        live = await self._known(task)
        try:
            await live.output.reopen_log()
        except OSError as error:
            raise AdapterError(f"{task.log}: {error.strerror or error}") from error

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        live = await self._known(task)
        document = pack_json(RESOURCES, msgspec.json.encode(resources))
        request = pb.UpdateRequest(id=task.id, resources=document)
        await self.shims.order(live.record.address, "Update", request)

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        """Checkpoint a container into an archive. Raises AdapterError."""
        live = await self._known(task)
        request = pb.CheckpointRequest(
            id=task.id,
            path=str(archive),
            options=self.options.checkpoint(keeps_running=keeps_running),
        )
        try:
            await self.shims.order(live.record.address, "Checkpoint", request)
        except AdapterError as error:
            raise checkpoint_refusal(error) from None

    async def processes(self, task: Task) -> tuple[int, ...]:
        live = await self._known(task)
        request = pb.PidsRequest(id=task.id)
        reply = await self.shims.call(live.record.address, "Pids", request, pb.PidsResponse)
        return tuple(process.pid for process in reply.processes)

    async def usage(self, task: Task) -> TaskUsage | None:
        """Return the usage that the shim counts. Raises AdapterError, also after 2 s."""
        live = await self._known(task)
        request = pb.StatsRequest(id=task.id)
        reply = await self._stats_shims.call(
            live.record.address,
            "Stats",
            request,
            pb.StatsResponse,
            deadline_s=self.stats_deadline_s,
        )
        return task_usage(reply.stats)

    async def _roll_back(self, task: Task, directory: TaskDirectory) -> None:
        """Delete a task whose creation failed, and what the shim does not know that it made.

        Shims of virtual machines keep directories and cgroups of a machine that did not start until
        their program is run with `delete`. Source: containerd, "Runtime v2", `delete`.
        """
        has_shim = await asyncio.to_thread(directory.record) is not None
        try:
            await self.delete(task)
        finally:
            if has_shim:
                try:
                    await self.program.delete(task.id, task.bundle)
                except AdapterError as error:
                    log.warning("shim left something behind", task=task.id, reason=error)

    async def _create(self, task: Task, directory: TaskDirectory) -> int:
        async with self._opening:
            await self._listen()
        await asyncio.to_thread(directory.make)
        pipes = make_pipes(
            directory.path, has_stdin=task.has_stdin, has_stderr=not task.has_terminal
        )
        async with self._pod(task):
            making = asyncio.ensure_future(self._make(task, directory, pipes))
            try:
                pid = await asyncio.shield(making)
            except asyncio.CancelledError:
                # An interrupted creation leaves unrecorded processes; a complete one can be undone.
                await asyncio.wait({making})
                raise
        live = self._live[task.id]
        request = pb.ConnectRequest(id=task.id)
        connected = await self.shims.call(
            live.record.address, "Connect", request, pb.ConnectResponse
        )
        live.record = await asyncio.to_thread(
            with_processes, directory, live.record, connected.shim_pid, pid
        )
        return pid

    async def _make(self, task: Task, directory: TaskDirectory, pipes: dict[int, Path]) -> int:
        """Start the processes that a task needs, and record them. Returns the task's process ID."""
        options = await asyncio.to_thread(self.options.of_task)
        keeper = None
        # Without a log, the output need not survive the engine.
        if task.log is not None:
            keeper = await asyncio.to_thread(start_keeper, pipes, self.program.search_path)
        try:
            options_bytes = b"" if options is None else options.SerializeToString()
            address = await self.program.start(task.id, task.bundle, options_bytes)
            record = Record(address, keeper=keeper)
            directory.write_record(record)
        except BaseException:
            await end_process(keeper)
            raise
        self._live[task.id] = _RunningTask(record, pipes, self._output(task, pipes))
        request = pb.CreateRequest(
            id=task.id,
            bundle=str(task.bundle),
            rootfs=[
                pb.Mount(type=source.kind, source=source.source, options=source.options)
                for source in task.rootfs
            ],
            terminal=task.has_terminal,
            **_pipe_fields(pipes),
            options=options,
        )
        return (
            await self.shims.call(
                address,
                "Create",
                request,
                pb.CreateResponse,
                deadline_s=self.options.handler.start_deadline_s,
            )
        ).pid

    async def _known(self, task: Task) -> _RunningTask:
        """Return the open task, opening it from its record if needed. Raises TaskNotFoundError."""
        async with self._opening:
            await self._listen()
            if task.id in self._live:
                return self._live[task.id]
            directory = TaskDirectory(task.bundle)
            record = await asyncio.to_thread(directory.record)
            if record is None:
                raise TaskNotFoundError(f"no shim was started for {task.id} in {task.bundle}")
            pipes = await asyncio.to_thread(pipes_in, directory.path)
            try:
                output = self._output(task, pipes)
            except OSError as error:
                raise AdapterError(f"{directory.path}: {error.strerror or error}") from error
            live = self._live[task.id] = _RunningTask(record, pipes, output)
            return live

    def _pod(self, task: Task) -> asyncio.Lock:
        """Return the lock that serialises starts and stops of a pod's shim.

        Two concurrent starts create two shims, of which one cannot be found again.
        """
        return self._pods.setdefault(task.sandbox_id, asyncio.Lock())

    async def _listen(self) -> None:
        if self.events is None:
            try:
                self.events = await ShimEvents.listen(self.program.events, self._out_of_memory)
            except OSError as error:
                why = error.strerror or str(error)
                raise AdapterError(f"{self.program.events}: {why}") from error

    def _output(self, task: Task, pipes: Mapping[int, Path]) -> ProcessOutput:
        log = None if task.log is None else CriLog(task.log)
        return ProcessOutput({key: path for key, path in pipes.items() if key}, log)

    async def _wait(self, task: Task, live: _RunningTask) -> Exit:
        request = pb.WaitRequest(id=task.id)
        try:
            # No deadline: a container may run for years.
            reply = await self.shims.call(
                live.record.address, "Wait", request, pb.WaitResponse, deadline_s=None
            )
        except ShimLostError:
            # Without its shim a task cannot be controlled, so it is killed.
            ended = await self.program.delete(task.id, task.bundle)
            return self._exit(task, live, ended.exit_status or _UNKNOWN_EXIT, ended.exited_at)
        return self._exit(task, live, reply.exit_status, reply.exited_at)

    def _exit(self, task: Task, live: _RunningTask, code: int, when: Timestamp) -> Exit:
        is_cut = task.id in self._memory_cut or was_memory_cut(live.record.memory)
        return Exit(code, when.ToNanoseconds(), is_out_of_memory=is_cut)

    async def _state(self, task: Task, live: _RunningTask) -> pb.StateResponse:
        request = pb.StateRequest(id=task.id)
        return await self.shims.call(live.record.address, "State", request, pb.StateResponse)

    def _out_of_memory(self, task_id: str) -> None:
        if task_id in self._live:
            self._memory_cut.add(task_id)


def _pipe_fields(pipes: Mapping[int, Path]) -> dict[str, str]:
    names = ("stdin", "stdout", "stderr")
    return {name: str(pipes[key]) for key, name in enumerate(names) if key in pipes}

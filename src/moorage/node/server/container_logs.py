"""`/containerLogs/NAMESPACE/POD/CONTAINER`: serves a container's log, or the selected part of it.

Source: core/v1 PodLogOptions; kubelet `getContainerLogs`, `validateContainerLogStatus`, with the
messages that users see.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from aiohttp import web

from moorage.api.clock import parse_time
from moorage.api.pods import ContainerStatus, PodStatus
from moorage.node.logs import STDERR, STDOUT, LogOptions, LogReadError, read_log
from moorage.node.pod_facts.containers import member
from moorage.node.pods.context import NodeContext
from moorage.node.pods.pod_manager import PodManager
from moorage.node.runtime.views import ContainerView, State

_STREAMS = {
    "": frozenset({STDOUT, STDERR}),
    "All": frozenset({STDOUT, STDERR}),
    "Stdout": frozenset({STDOUT}),
    "Stderr": frozenset({STDERR}),
}
_FALSE = frozenset({"0", "false", "False", "f", "F", "FALSE"})

_IMAGE_TEXTS = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class NoLogError(Exception):
    """There is no log to return; the text says why."""


class QueryError(ValueError):
    """A query is malformed (400) or invalid (422)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ContainerLogs:
    """Serves requests for logs."""

    def __init__(self, context: NodeContext, pod_manager: PodManager) -> None:
        self._context = context
        self._pod_manager = pod_manager

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve a log request: 404 for an unknown pod or container, 400 without a log."""
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        container = request.match_info["container"]
        try:
            options = log_options(request.query, self._context.clock.now())
        except QueryError as error:
            return web.Response(status=error.status, text=f'{{"message": "{error}"}}')
        worker = self._pod_manager.find(namespace, name)
        if worker is None:
            return web.Response(status=404, text=f'pod "{name}" does not exist')
        if member(worker.pod.spec, container) is None:
            text = f'container "{container}" not found in pod "{name}"'
            return web.Response(status=404, text=text)
        try:
            wanted = container_id(
                worker.status, name, container, is_previous=_is_true(request.query, "previous")
            )
            view = self._find(worker.uid, wanted)
        except NoLogError as error:
            return web.Response(status=400, text=str(error))
        return await self._send(request, view, options)

    def _find(self, uid: str, wanted: str) -> ContainerView:
        engine_id = wanted.rpartition("//")[2]
        for container in self._context.observer.view(uid).containers:
            if container.id == engine_id and container.log_path:
                return container
        raise NoLogError(f"unable to retrieve container logs for {wanted}")

    async def _send(
        self, request: web.Request, container: ContainerView, options: LogOptions
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        pieces = read_log(Path(container.log_path), options, lambda: self._is_running(container))
        try:
            # Read first, so that a log that cannot be opened still gets its own status code.
            first = await anext(pieces, None)
        except LogReadError as error:
            return web.Response(status=400, text=str(error))
        await response.prepare(request)
        try:
            if first is not None:
                await response.write(first)
                async for piece in pieces:
                    await response.write(piece)
        except LogReadError as error:
            await response.write(f"{error}\n".encode())
        finally:
            await pieces.aclose()
        await response.write_eof()
        return response

    async def _is_running(self, container: ContainerView) -> bool:
        for other in self._context.observer.view(container.uid).containers:
            if other.id == container.id:
                return other.state is not State.EXITED
        return False


def log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """Parse a query. Raises QueryError."""
    try:
        tail = _number(query, "tailLines")
        if query.get("tail"):
            tail = None if query["tail"] == "all" else int(query["tail"])
        limit = _number(query, "limitBytes")
        seconds = _number(query, "sinceSeconds")
        moment = parse_time(query["sinceTime"]) if query.get("sinceTime") else None
    except ValueError as error:
        raise QueryError(400, "Unable to decode query.") from error
    stream = query.get("stream", "")
    is_wrong = (
        (tail is not None and tail < 0)
        or (limit is not None and limit < 1)
        or (seconds is not None and seconds < 1)
        or (seconds is not None and moment is not None)
        or stream not in _STREAMS
        or (tail is not None and stream in ("Stdout", "Stderr"))
    )
    if is_wrong:
        raise QueryError(422, "Invalid request.")
    if seconds is not None:
        moment = now - timedelta(seconds=seconds)
    return LogOptions(
        follow=_is_true(query, "follow"),
        timestamps=_is_true(query, "timestamps"),
        since=moment,
        tail_lines=tail,
        limit_bytes=limit,
        streams=_STREAMS[stream],
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if query.get(name) else None


def _is_true(query: Mapping[str, str], name: str) -> bool:
    return name in query and query[name] not in _FALSE


def container_id(status: PodStatus, pod: str, name: str, *, is_previous: bool) -> str:
    """Return the container whose log is requested, as `engine://id`. Raises NoLogError."""
    every = (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )
    named = next(
        (container_status for container_status in every if container_status.name == name), None
    )
    if named is None:
        raise NoLogError(f'container "{name}" in pod "{pod}" is not available')
    if is_previous:
        last = named.last_state.terminated
        if last is None or not last.container_id:
            raise NoLogError(f'previous terminated container "{name}" in pod "{pod}" not found')
        return last.container_id
    return _present_id(named, f'container "{name}" in pod "{pod}" is')


def _present_id(status: ContainerStatus, subject: str) -> str:
    state, last = status.state, status.last_state.terminated
    if state.running is not None:
        return status.container_id
    for ended in (state.terminated, last):
        if ended is not None and ended.container_id:
            return ended.container_id
    if state.terminated is not None or last is not None:
        raise NoLogError(f"{subject} terminated")
    if state.waiting is None:
        raise NoLogError(f"{subject} waiting to start - no logs yet")
    reason = state.waiting.reason
    raise NoLogError(f"{subject} waiting to start: {_IMAGE_TEXTS.get(reason, reason)}")

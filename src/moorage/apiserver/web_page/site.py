"""Site of the web page: from a path to a page, with what the user may read.

    /                             classes, handlers by node, features
    /classes/NAME                 a class and its pods; `-` stands for pods without a class
    /namespaces/NAMESPACE/pods/NAME    the way of a pod
    /style.css

Links are relative, so that the site works below any path: of an API server, of `kubectl proxy`, of
a Service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.meta import Object
from moorage.api.names import dns_label_errors, dns_subdomain_errors
from moorage.api.pods import ContainerStatus, Pod
from moorage.api.runtime_group import (
    CHOICE_ANNOTATION,
    CHOICE_REASON_ANNOTATION,
    RuntimeClass,
    RuntimeProfile,
)
from moorage.apiserver.web_page.doors import Reader
from moorage.apiserver.web_page.objects import (
    EVENT_ROWS,
    NO_CLASS,
    NODE_ROWS,
    POD_ROWS,
    EventRow,
    NodeRow,
    PodTally,
    SmallProfiles,
    small_class,
    small_event,
    small_node,
)
from moorage.apiserver.web_page.templates import Templates
from moorage.apiserver.web_page.views import ClassView, class_rows, overview
from moorage.runtimeclass.start_phases import CONDITION_RESOLUTION_MS, StartPhases, phases_of
from moorage.wire.client.resources import PODS, RUNTIME_CLASSES, RUNTIME_PROFILES, Resource

T = TypeVar("T", bound=Object)

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"
STYLE = "/style.css"
NO_CLASS_PATH = "-"
"""Path of the pods without a class; no class can have this name."""

HEADERS = {
    # The page loads nothing but its own style sheet, and no other site may frame it.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every page."""


class Page(msgspec.Struct, frozen=True):
    """A page: its body, media type and further headers."""

    body: bytes
    content_type: str = HTML
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: HEADERS)


class Site:
    """Answers GET requests below the site's root."""

    async def page(self, path: str, reader: Reader) -> Page:
        """Return the page of a path, which begins with a slash, the root's being `/`.

        What the user may not list is left out, and the page says so. Raises NotFoundError for
        another path, and ForbiddenError or NotFoundError for the object that a page is about.
        """
        if path == STYLE:
            return self.style
        match path.split("/")[1:]:
            case [""]:
                return await self._overview(reader)
            case ["classes", name] if name:
                return await self._class(reader, NO_CLASS if name == NO_CLASS_PATH else name)
            case ["namespaces", namespace, "pods", name] if _is_pod(namespace, name):
                return await self._pod(reader, namespace, name)
        raise NotFoundError(f"the web page has no {path}")

    async def _overview(self, reader: Reader) -> Page:
        lists, tally = _Lists(reader), PodTally()
        classes, nodes, profiles = (
            await lists.classes(),
            await lists.nodes(),
            await lists.profiles(),
        )
        await lists.visit(POD_ROWS, tally.add)
        return await self._rendered(
            "overview.html", "", lists, lambda: overview(classes, nodes, profiles, tally.counts())
        )

    async def _class(self, reader: Reader, name: str) -> Page:
        lists, tally = _Lists(reader), PodTally(name)
        classes = [each for each in await lists.classes() if each.metadata.name == name]
        await lists.visit(POD_ROWS, tally.add)
        nodes, profiles = await lists.nodes(), await lists.profiles()

        def view() -> ClassView:
            counts = tally.counts()
            own = {name: counts[name]} if name in counts else {}
            rows = class_rows(classes, nodes, profiles, own)
            if not rows and RUNTIME_CLASSES.plural in lists.missing:
                raise ForbiddenError("you may not list runtimeclasses")
            if not rows:
                raise NotFoundError.of(RUNTIME_CLASSES.plural, name, group=RUNTIME_CLASSES.group)
            return ClassView(rows[0], tally.first())

        return await self._rendered("class.html", "../", lists, view)

    async def _pod(self, reader: Reader, namespace: str, name: str) -> Page:
        pod = await reader.get(PODS, name, namespace)
        runtime_class: RuntimeClass | None = None
        lists, events = _Lists(reader), LatestEvents()
        if class_name := pod.spec.runtime_class_name:
            runtime_class = await lists.attempt(
                RUNTIME_CLASSES, lambda: reader.get(RUNTIME_CLASSES, class_name)
            )
        about = f"involvedObject.uid={pod.metadata.uid}"
        await lists.visit(EVENT_ROWS, events.add, namespace, field_selector=about)
        return await self._rendered(
            "pod.html", "../../../", lists, lambda: pod_view(pod, runtime_class, events.all())
        )

    async def _rendered(
        self, template: str, root: str, lists: _Lists, view: Callable[[], Any]
    ) -> Page:
        # In a thread: a page about thousands of nodes and pods takes longer than others can wait.
        return Page(
            await asyncio.to_thread(
                lambda: self._templates.render(
                    template, root=root, view=view(), missing=lists.missing
                )
            )
        )

    @cached_property
    def _templates(self) -> Templates:
        return Templates()

    @cached_property
    def style(self) -> Page:
        """Return the style sheet, which needs no rights."""
        return Page(
            files("moorage.apiserver.web_page.templates").joinpath("style.css").read_bytes(), CSS
        )


def _is_pod(namespace: str, name: str) -> bool:
    """Whether a pod may have these names. Others would ask the API server for another path."""
    return not dns_label_errors(namespace) and not dns_subdomain_errors(name)


class _Lists:
    """Reads lists, and keeps the names of those that the user may not read."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.missing: list[str] = []

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        """Call `take` with each object, with none where they cannot be read."""
        await self.attempt(
            resource,
            lambda: self._reader.visit(resource, take, namespace, field_selector=field_selector),
        )

    async def classes(self) -> list[RuntimeClass]:
        """Return all classes."""
        found: list[RuntimeClass] = []
        await self.visit(RUNTIME_CLASSES, lambda each: found.append(small_class(each)))
        return found

    async def nodes(self) -> list[NodeRow]:
        """Return all nodes."""
        found: list[NodeRow] = []
        await self.visit(NODE_ROWS, lambda each: found.append(small_node(each)))
        return found

    async def profiles(self) -> list[RuntimeProfile]:
        """Return all profiles, but those of a node that has too many."""
        found: list[RuntimeProfile] = []
        sizes = SmallProfiles()

        def take(profile: RuntimeProfile) -> None:
            if (small := sizes.small(profile)) is not None:
                found.append(small)

        await self.visit(RUNTIME_PROFILES, take)
        return found

    async def attempt(self, resource: Resource[Any], read: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of `read`, None where the user may not read it or it does not exist."""
        try:
            return await read()
        except ForbiddenError:
            self.missing.append(resource.plural)
        except NotFoundError:
            pass  # A server without our custom resources, or an object that has just gone.
        return None


# Way of a pod: its class, its steps with their times, and what was said about it. Pure.

_MOST_EVENTS = 50


class Step(msgspec.Struct, frozen=True):
    """A step of a pod's start: its milliseconds, and its part of the whole in percent.

    `percent` is None for a step known to a whole second beside others that a node agent measured.
    """

    name: str
    ms: float
    resolution_ms: float
    percent: float | None


class ContainerRow(msgspec.Struct, frozen=True):
    """A container: its state in words."""

    name: str
    image: str
    state: str
    restarts: int


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a pod shows. `on_node_ms` is None where no node agent measured the start."""

    pod: Pod
    handler: str
    choice: str
    reason: str
    steps: tuple[Step, ...]
    total_ms: float | None
    on_node_ms: float | None
    containers: tuple[ContainerRow, ...]
    events: tuple[EventRow, ...]


class LatestEvents:
    """Keeps the latest events of those that are read."""

    def __init__(self) -> None:
        self._events: list[EventRow] = []

    def add(self, event: EventRow) -> None:
        """Keep an event, until later ones take its place."""
        self._events.append(small_event(event))
        if len(self._events) >= 2 * _MOST_EVENTS:
            self._events = list(self.all())

    def all(self) -> tuple[EventRow, ...]:
        """Return the latest events, the last one at the end."""
        return tuple(sorted(self._events, key=lambda event: event.seen_at)[-_MOST_EVENTS:])


def pod_view(pod: Pod, runtime_class: RuntimeClass | None, events: Iterable[EventRow]) -> PodView:
    """Return the page of a pod; the events are the latest about it."""
    phases = phases_of(pod)
    annotations = pod.metadata.annotations
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return PodView(
        pod=pod,
        handler="" if runtime_class is None else runtime_class.handler,
        choice=annotations.get(CHOICE_ANNOTATION, ""),
        reason=annotations.get(CHOICE_REASON_ANNOTATION, ""),
        steps=_steps(phases),
        total_ms=None if phases is None else phases.total_ms,
        on_node_ms=None if phases is None else phases.on_node_ms,
        containers=tuple(map(_container, statuses)),
        events=tuple(events),
    )


def _steps(phases: StartPhases | None) -> tuple[Step, ...]:
    if phases is None:
        return ()
    on_node_ms = phases.on_node_ms
    whole_ms = (phases.total_ms if on_node_ms is None else on_node_ms) or 1.0
    return tuple(
        Step(
            phase.name,
            phase.ms,
            phase.resolution_ms,
            None
            if on_node_ms is not None and phase.resolution_ms >= CONDITION_RESOLUTION_MS
            else round(100 * phase.ms / whole_ms, 1),
        )
        for phase in phases.phases
    )


def _container(status: ContainerStatus) -> ContainerRow:
    state = status.state
    if state.waiting is not None:
        words = f"waiting: {state.waiting.reason}" if state.waiting.reason else "waiting"
    elif state.terminated is not None:
        ended = state.terminated
        words = f"ended: {ended.reason or 'unknown'}, exit code {ended.exit_code}"
    else:
        words = "waiting" if state.running is None else "running"
    return ContainerRow(status.name, status.image, words, status.restart_count)

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
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.meta import Object
from moorage.api.names import dns_label_errors, dns_subdomain_errors
from moorage.api.runtime_classes import RuntimeClass
from moorage.api.runtime_profiles import RuntimeProfile
from moorage.apiserver.web_page.objects import (
    EVENT_ROWS,
    NODE_ROWS,
    POD_ROWS,
    NodeRow,
    SmallProfiles,
    small_class,
    small_node,
)
from moorage.apiserver.web_page.pod_tally import NO_CLASS, PodTally
from moorage.apiserver.web_page.pod_view import LatestEvents, pod_view
from moorage.apiserver.web_page.reader import Reader
from moorage.apiserver.web_page.templates import Templates
from moorage.apiserver.web_page.views import ClassView, class_rows, overview
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
        """Return what `read` returns, None where the user may not read it or it does not exist."""
        try:
            return await read()
        except ForbiddenError:
            self.missing.append(resource.plural)
        except NotFoundError:
            pass  # A server without our custom resources, or an object that has just gone.
        return None

"""The calls beyond the CRI: images from and to files, and news of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.handlers.availability import AVAILABLE, Verdict
from moorage.engine.handlers.definition import parse_definition
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.handlers.templates import Catalogue, Diagnostic, OfferedHandler
from moorage.engine.service.extension import ExtensionServicer, catalogue_message
from moorage.wire.cri import engine_pb

Listener = Callable[[Catalogue, Catalogue], None]


class Images:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def load_names(self, archive: Path) -> tuple[str, ...]:
        self.asked.append((archive,))
        return ("a:1", "b:2")

    async def save(
        self, names: Sequence[str], archive: Path, known: Path | None
    ) -> list[SimpleNamespace]:
        self.asked.append((tuple(names), archive, known))
        return [SimpleNamespace(name="a", id="sha256:1", is_exact=True)]


class Directory:
    """A directory of handlers that a test changes."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.listeners: list[Listener] = []

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def change(self, *handlers: OfferedHandler) -> None:
        old, self.catalogue = (
            self.catalogue,
            Catalogue({handler.name: handler for handler in handlers}),
        )
        for listener in self.listeners:
            listener(old, self.catalogue)


def offered(name: str, more: str = "", **fields: Any) -> OfferedHandler:
    text = f'adapter = "oci"\nbinary = "runc"\n{more}\n'
    definition = parse_definition(Path(f"/h/{name}.toml"), text.encode())
    return OfferedHandler(definition=definition, **fields)


@pytest.fixture
def images() -> Images:
    return Images()


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def calls(images: Any, directory: Any) -> ExtensionServicer:
    return ExtensionServicer(images, directory)


async def test_archives_are_loaded_by_their_whole_path(
    calls: ExtensionServicer, images: Images
) -> None:
    reply = await calls.load_images(engine_pb.LoadImagesRequest(archive="/x/a.tar"))
    assert list(reply.names) == ["a:1", "b:2"]
    with pytest.raises(InvalidError, match=r"archive 'a\.tar' is not an absolute path"):
        await calls.load_images(engine_pb.LoadImagesRequest(archive="a.tar"))
    assert images.asked == [(Path("/x/a.tar"),)]


async def test_images_are_saved_with_the_layers_that_are_known(
    calls: ExtensionServicer, images: Images
) -> None:
    request = engine_pb.SaveImagesRequest(images=["a", "b"], archive="/x/a.tar")
    reply = await calls.save_images(request)
    assert [(image.name, image.id, image.is_exact) for image in reply.images] == [
        ("a", "sha256:1", True)
    ]
    request.known_layers = "/known"
    await calls.save_images(request)
    assert images.asked == [
        (("a", "b"), Path("/x/a.tar"), None),
        (("a", "b"), Path("/x/a.tar"), Path("/known")),
    ]
    for wrong in ({"archive": "a.tar"}, {"archive": "/a.tar", "known_layers": "known"}):
        with pytest.raises(InvalidError, match="is not an absolute path"):
            await calls.save_images(engine_pb.SaveImagesRequest(**wrong))
    assert len(images.asked) == 2


async def test_handlers_are_sent_at_once_and_at_each_change(
    calls: ExtensionServicer, directory: Directory
) -> None:
    directory.change(offered("a"))
    watch = calls.watch_handlers(engine_pb.WatchHandlersRequest())
    assert [handler.name for handler in (await anext(watch)).handlers] == ["a"]
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    assert not waiting.done()
    directory.change(offered("b"), offered("a"))
    assert [handler.name for handler in (await waiting).handlers] == ["a", "b"]
    # A change that comes before the next question is not missed.
    directory.change()
    assert list((await anext(watch)).handlers) == []
    assert len(directory.listeners) == 1
    await watch.aclose()  # type: ignore[attr-defined]
    assert directory.listeners == []


def test_handlers_are_converted_to_a_message() -> None:
    broken = Verdict("no KVM", "turn it on")
    handlers = [
        offered("b", "default = true", program=Path("/usr/bin/runc"), version="1.2",
                features=HandlerFeatures(user_namespaces=True), verdict=AVAILABLE),
        offered("a", verdict=broken),
    ]  # fmt: skip
    complaint = Diagnostic(Path("/h/c.toml"), 3, "bad", "write it again")
    message = catalogue_message(
        Catalogue({handler.name: handler for handler in handlers}, (complaint,))
    )
    a, b = message.handlers
    assert list(message.complaints) == [str(complaint)]
    assert b == engine_pb.Handler(
        name="b", is_default=True, is_available=True, adapter="oci", program="/usr/bin/runc",
        version="1.2", features=["userNamespaces"], file="/h/b.toml",
    )  # fmt: skip
    assert a == engine_pb.Handler(
        name="a", reason="no KVM", remedy="turn it on", adapter="oci", program="runc",
        file="/h/a.toml",
    )  # fmt: skip

"""What changes about an engine's handlers becomes events on the node, each once."""

from __future__ import annotations

from moorage.cluster.engine.handlers import NORMAL, WARNING, HandlerEvent, handler_events
from moorage.wire.cri import engine_pb


def handlers(*names: str, complaints: tuple[str, ...] = (), broken: str = "") -> engine_pb.Handlers:
    listed = [
        engine_pb.Handler(name=name, is_available=True, program=f"/bin/{name}", version="1.2")
        for name in names
    ]
    if broken:
        listed.append(
            engine_pb.Handler(name=broken, reason="it is not on PATH", remedy="install it")
        )
    return engine_pb.Handlers(handlers=listed, complaints=complaints)


def test_first_message_reports_only_problems() -> None:
    first = handlers("runc", complaints=("a.toml:1: unknown key",))
    assert handler_events(None, first) == (
        HandlerEvent(WARNING, "RuntimeHandlerFileBroken", "a.toml:1: unknown key"),
    )


def test_complaint_is_reported_once_and_again_when_its_text_changes() -> None:
    before = handlers(complaints=("a.toml:1: x",))
    assert handler_events(before, before) == ()
    (event,) = handler_events(before, handlers(complaints=("a.toml:1: x", "a.toml:2: y")))
    assert event.message == "a.toml:2: y"


def test_added_handler_is_reported_with_its_program() -> None:
    (event,) = handler_events(handlers("runc"), handlers("runc", "crun"))
    assert event == HandlerEvent(
        NORMAL, "RuntimeHandlerAdded", 'runtime handler "crun" is available: /bin/crun 1.2'
    )


def test_removed_handler_is_reported_with_the_reason() -> None:
    (gone,) = handler_events(handlers("runc", "crun"), handlers("runc"))
    assert gone.reason == "RuntimeHandlerRemoved"
    assert "its file is gone. Running pods are not affected." in gone.message
    (broken,) = handler_events(handlers("crun"), handlers(broken="crun"))
    assert "it is not on PATH; install it" in broken.message

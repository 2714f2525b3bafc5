"""Kept messages: the right one or none, and never more than the budget."""

from __future__ import annotations

from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.messages import Messages
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.protobuf import ProtobufDecoder
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value

SCHEMA = load_schema()
CLASS = next(kind for kind in STORED_KINDS if kind.name == "RuntimeClass")
FACTORY = StoredFactory(STORED_KINDS)


def _entry_bytes() -> int:
    """Return what an entry counts besides its message."""
    messages = Messages()
    messages.keep("a", 1, b"")
    return messages.held_bytes


ENTRY_BYTES = _entry_bytes()


def test_a_message_is_of_one_revision() -> None:
    messages = Messages()
    assert messages.get("a", 1) is None
    messages.keep("a", 1, b"one")
    assert messages.get("a", 1) == b"one"
    assert messages.get("a", 2) is None
    messages.keep("a", 2, b"second")
    assert messages.get("a", 1) is None
    assert messages.get("a", 2) == b"second"
    assert messages.held_bytes == 6 + ENTRY_BYTES


def test_the_oldest_go_beyond_the_budget() -> None:
    messages = Messages(3 * (ENTRY_BYTES + 10))
    for number in range(5):
        messages.keep(str(number), 1, b"x" * 10)
        assert messages.held_bytes <= 3 * (ENTRY_BYTES + 10)
    assert [messages.get(str(number), 1) is not None for number in range(5)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    messages.keep("huge", 1, b"x" * 10_000)
    assert messages.get("huge", 1) is None
    assert messages.held_bytes == 0


def _item(revision: int, handler: str) -> Stored:
    value = to_value({"metadata": {"name": "a"}, "handler": handler})
    if not revision:
        return Stored.unsaved(CLASS.key("", "a"), value)
    return FACTORY(CLASS.key("", "a"), revision, value)


def test_the_codec_encodes_each_revision_once() -> None:
    codec = Codec(SCHEMA)
    decoder = ProtobufDecoder(SCHEMA)
    v1, v1alpha1 = CLASS.served[0], CLASS.served[-1]
    first = codec.message(v1, _item(3, "h"))
    assert codec.message(v1, _item(3, "h")) is first
    assert decoder.decode(v1.type, first) == {
        "metadata": {"name": "a", "resourceVersion": "3"}, "handler": "h",
    }  # fmt: skip
    # A dry run's object, which has no revision, is not the stored one.
    dry = codec.message(v1, _item(0, "other"))
    assert decoder.decode(v1.type, dry)["handler"] == "other"
    assert codec.message(v1, _item(3, "h")) is first
    old = codec.message(v1alpha1, _item(3, "h"))
    assert decoder.decode(v1alpha1.type, old)["spec"] == {"runtimeHandler": "h"}
    assert codec.message(v1, _item(3, "h")) is first

"""Stream protocols: the one chosen, terminal sizes, and how an exit is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.streams import forward
from moorage.engine.streams.command import Exited, Failed, Size, SizeReader, encode
from moorage.engine.streams.endpoint import channel_names
from moorage.engine.streams.requests import (
    SOCKET_COMMAND,
    SOCKET_PORT_FORWARD,
    SPDY_COMMAND,
    SPDY_PORT_FORWARD,
    choose,
)
from moorage.wire.cri import pb


@pytest.mark.parametrize(
    ("offered", "spoken", "name"),
    [
        (["v4.channel.k8s.io", "channel.k8s.io"], SPDY_COMMAND, "v4.channel.k8s.io"),
        (["v5.channel.k8s.io", "v2.channel.k8s.io"], SPDY_COMMAND, "v2.channel.k8s.io"),
        ([], SPDY_COMMAND, "channel.k8s.io"),
        ([], SPDY_PORT_FORWARD, "portforward.k8s.io"),
        (["x", "portforward.k8s.io"], SPDY_PORT_FORWARD, "portforward.k8s.io"),
        ([], SOCKET_COMMAND, ""),
        ([""], SOCKET_COMMAND, None),
        (["v5.channel.k8s.io"], SOCKET_PORT_FORWARD, None),
        (["x"], SPDY_COMMAND, None),
    ],
)
def test_the_first_offered_that_is_spoken_is_taken(offered, spoken, name) -> None:  # type: ignore[no-untyped-def]
    dialect = choose(offered, spoken)
    assert (dialect.name if dialect else None) == name


@pytest.mark.parametrize(("name", "has_resize"), [("v4", True), ("v3", True), ("v2", False)])
def test_terminal_sizes_have_a_channel_from_version_3_on(name: str, has_resize: bool) -> None:
    dialect = choose([f"{name}.channel.k8s.io"], SPDY_COMMAND)
    assert dialect
    assert dialect.has_resize is has_resize


@given(st.lists(st.tuples(st.integers(1, 65535), st.integers(1, 65535)), max_size=20), st.data())
def test_sizes_are_read_however_they_are_cut(sizes: list[tuple[int, int]], data) -> None:  # type: ignore[no-untyped-def]
    wire = b"".join(b'{"Width":%d,"Height":%d}\n' % size for size in sizes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    reader = SizeReader()
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    result = [size for piece in pieces for size in reader.feed(piece)]
    assert result == [Size(width, height) for width, height in sizes]


@given(st.binary(max_size=10_000))
def test_no_nonsense_stops_the_sizes_behind_it(nonsense: bytes) -> None:
    reader = SizeReader()
    reader.feed(nonsense)
    assert reader.feed(b'}{"Width":2,"Height":1}')[-1:] == [Size(2, 1)]


@pytest.mark.parametrize(
    "text", [b'{"Width":0,"Height":1}', b'{"Width":65536,"Height":1}', b'{"Width":1}', b"{]}",
             b'{"Width":"1","Height":1}', b'{"Width":1e99,"Height":1}'],
)  # fmt: skip
def test_invalid_size_is_ignored(text: bytes) -> None:
    assert SizeReader().feed(text) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Exited(), b""),
        (Exited(3), b"command terminated with non-zero exit code: 3"),
        (Failed("error executing: no"), b"error executing: no"),
    ],
)
def test_exit_is_encoded_as_text_or_as_a_status(outcome: Exited | Failed, words: bytes) -> None:
    assert encode(outcome, as_json=False) == words
    status = json.loads(encode(outcome, as_json=True))
    assert status["status"] == ("Failure" if words else "Success")
    assert words.decode() in status.get("message", "")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Exited(0), {"metadata": {}, "status": "Success"}),
        (
            Exited(3),
            {
                "metadata": {},
                "status": "Failure",
                "message": "command terminated with non-zero exit code: 3",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
            },
        ),
        (
            Failed("no"),
            {
                "metadata": {},
                "status": "Failure",
                "message": "Internal error occurred: no",
                "reason": "InternalError",
                "details": {"causes": [{"message": "no"}]},
                "code": 500,
            },
        ),
    ],
)
def test_status_objects_are_those_of_the_kubelets_endpoint(
    outcome: Exited | Failed, status: dict[str, Any]
) -> None:
    assert json.loads(encode(outcome, as_json=True)) == status


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (pb.ExecRequest(), ["error"]),
        (pb.ExecRequest(stdin=True), ["stdin", "error"]),
        (pb.ExecRequest(stdout=True), ["stdout", "error"]),
        (pb.AttachRequest(stderr=True), ["stderr", "error"]),
        (pb.ExecRequest(tty=True), ["error", "resize"]),
        (
            pb.AttachRequest(stdin=True, stdout=True, stderr=True, tty=True),
            ["stdin", "stdout", "stderr", "error", "resize"],
        ),
    ],
)
def test_channels_that_a_request_needs(
    request_: pb.ExecRequest | pb.AttachRequest, names: list[str]
) -> None:
    newest = choose(["v4.channel.k8s.io"], SPDY_COMMAND)
    oldest = choose([], SPDY_COMMAND)
    assert newest is not None
    assert oldest is not None
    assert list(channel_names(request_, newest)) == names
    assert list(channel_names(request_, oldest)) == [name for name in names if name != "resize"]


@pytest.mark.parametrize(
    ("text", "port"),
    [("1", 1), ("65535", 65535), ("00080", 80), ("0", None), ("65536", None), ("000080", None),
     ("", None), ("+80", None), ("8_0", None), ("٨٠", None)],
)  # fmt: skip
def test_port_of_a_stream(text: str, port: int | None) -> None:
    assert forward.forwarded_port({"port": text}) == port
    assert forward.forwarded_port({}) is None

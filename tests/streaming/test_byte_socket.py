"""Which subprotocol a websocket of bytes speaks."""

from __future__ import annotations

import pytest

from moorage.streaming.byte_socket import PROTOCOLS, UNNAMED, chosen_protocol

_KNOWN = [name for name in PROTOCOLS if name != UNNAMED]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], UNNAMED),
        (["odd"], None),
        (["odd", _KNOWN[-1], _KNOWN[0]], _KNOWN[-1]),
        (_KNOWN, _KNOWN[0]),
    ],
)
def test_the_first_offered_protocol_that_is_known_is_spoken(
    offered: list[str], chosen: str | None
) -> None:
    assert chosen_protocol(iter(offered)) == chosen

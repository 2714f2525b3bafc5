"""How messages of numbered channels are written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.streaming.channel_socket import ChannelError, Coding


@given(st.integers(0, 79), st.binary(), st.booleans())
def test_what_is_written_is_read(channel: int, data: bytes, is_base64: bool) -> None:
    coding = Coding(is_base64=is_base64)
    message = coding.encode(channel, data)
    assert isinstance(message, str) == is_base64
    wire = message.encode() if isinstance(message, str) else message
    assert coding.decode(wire) == (channel, data)


@pytest.mark.parametrize("channel", [10, 99, 254])
def test_binary_channels_go_beyond_a_digit(channel: int) -> None:
    coding = Coding()
    message = coding.encode(channel, b"x")
    assert isinstance(message, bytes)
    assert coding.decode(message) == (channel, b"x")


@given(st.binary(), st.booleans())
def test_anything_else_is_a_channel_error_or_a_message(message: bytes, is_base64: bool) -> None:
    try:
        channel, data = Coding(is_base64=is_base64).decode(message)
    except ChannelError:
        return
    assert len(data) < len(message)
    assert -48 <= channel <= 255


@pytest.mark.parametrize("message", [b"", b"0!!!", b"0YQ"])
def test_bad_base64_is_told(message: bytes) -> None:
    with pytest.raises(ChannelError):
        Coding(is_base64=True).decode(message)

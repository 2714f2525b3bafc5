"""PEM as Go reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.certificates import Block, encode_block, first_block, pem_blocks

A = b"-----BEGIN A-----\nMA==\n-----END A-----\n"
B = b"-----BEGIN B C-----\nMQ==\n-----END B C-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"nothing", []),
        (A, [Block("A", b"0")]),
        (A + b"between\n" + B, [Block("A", b"0"), Block("B C", b"1")]),
        (b"text " + A, []),
        (A.replace(b"\n", b"\r\n"), [Block("A", b"0")]),
        (b"-----BEGIN A-----\nK: v\nL: w\n\nMA==\n-----END A-----\n", [Block("A", b"0", True)]),
        (b"-----BEGIN A-----\n-----END A-----\n", [Block("A", b"")]),
        (b"-----BEGIN A-----\nMA==\n-----END B-----\n" + A, [Block("A", b"0")]),
        (b"-----BEGIN A-----\n!!\n-----END A-----\n" + A, [Block("A", b"0")]),
        (b"-----BEGIN A-----\nMA\n-----END A-----\n", []),
        (b"-----BEGIN A-----\nMA==\n", []),
        (b"-----BEGIN \xff-----\nMA==\n-----END \xff-----\n", [Block("\ufffd", b"0")]),
    ],
)
def test_blocks(text: bytes, expected: list[Block]) -> None:
    assert list(pem_blocks(text)) == expected
    assert first_block(text) == (expected[0] if expected else None)


@given(st.binary(max_size=300))
def test_what_is_encoded_is_read_back(content: bytes) -> None:
    text = encode_block("CERTIFICATE", content)
    assert list(pem_blocks(text)) == [Block("CERTIFICATE", content)]
    assert max(len(line) for line in text.splitlines()) <= 64


@given(st.binary(max_size=200))
def test_no_text_is_a_failure(text: bytes) -> None:
    list(pem_blocks(b"-----BEGIN A-----\n" + text))


@pytest.mark.parametrize(
    "piece",
    [
        b"-----BEGIN A-----\n",
        b"-----BEGIN A-----\n-----END B-----\n",
        b"-----BEGIN ",
        b"-----BEGIN A----- ",
        b"-----END A-----\n",
        b"a:b\n",
    ],
)
def test_a_hostile_text_takes_linear_time(piece: bytes) -> None:
    text = b"-----BEGIN A-----\n" + piece * (3_000_000 // len(piece))
    # Quadratic time ends at the time limit of tests.
    assert all(isinstance(block, Block) for block in pem_blocks(text))

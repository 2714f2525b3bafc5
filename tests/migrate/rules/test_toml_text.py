"""TOML texts are parsed within bounds of time and memory, whatever is in them."""

from __future__ import annotations

import tomllib
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.migrate.rules.toml_text import MAX_BYTES, MAX_DEPTH, MAX_PARTS, TomlError, parse_toml

_KEY = "k = 1\n"


def _key(parts: int, between: str = ".") -> str:
    return between.join(["a"] * parts)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{_KEY}{_key(60_000)} = 1\n", "line 2: a key has more than 16 parts"),
        (f"{_KEY}\n[{_key(60_000)}]\n", "line 3: a key has more than 16 parts"),
        (f"[[{_key(17)}]]\n", "line 1: a key has more than 16 parts"),
        (f"{_key(17, between=' . ')} = 1\n", "line 1: a key has more than 16 parts"),
        (".".join(['"a.b"', "'c'"] * 9) + " = 1", "line 1: a key has more than 16 parts"),
        (f"a = {{b = {{{_key(17)} = 1}}}}\n", "line 1: a key has more than 16 parts"),
        (f"{_KEY}a = {'[' * 100_000}", "line 2: arrays and inline tables are nested deeper"),
        (f"a = {'{a=' * 65}", "line 1: arrays and inline tables are nested deeper than 64"),
        ("a = " + "[\n" * 65, "line 65: arrays and inline tables are nested deeper than 64"),
        (f"{_KEY}a = [", "it is not TOML: "),
        ("a = 1\n" * 50_000, "it has more than 256 KiB of TOML; split it"),
    ],
)  # fmt: skip
def test_what_exceeds_a_bound_is_refused_with_its_line(text: str, error: str) -> None:
    with pytest.raises(TomlError) as raised:
        parse_toml(text)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    "text",
    [
        f"{_key(MAX_PARTS)} = 1\n",
        f"[{_key(MAX_PARTS)}]\n{_key(MAX_PARTS, between='  .  ')} = 1\n",
        f"a = {'[' * MAX_DEPTH}{']' * MAX_DEPTH}\n",
        "# " + _key(1000) + "[" * 1000 + "\n",
        f'a = "{_key(1000)}{"[" * 1000}"\n',
        f"a = '{_key(1000)}{'[' * 1000}'\n",
        f'a = """\n{_key(1000)}\n{"[" * 1000}"\n""\n\\""""""\n',
        f"a = '''\n{_key(1000)}\n{'[' * 1000}'\n''\n'''''\n",
        'a = "\\"' + _key(1000) + '"\n',
        "a = [" + "1.5, " * 1000 + "]\n",
        "a = [" + "[], " * 1000 + "]\n",
        "".join(f"[a{number}]\n[[b.c]]\n" for number in range(100)),
        "b = 1.5\r\n" + _key(16) + " = 1\r\n",
    ],
)
def test_what_a_configuration_may_have_is_parsed_as_python_does(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


_FRAGMENTS = st.sampled_from(
    ['"', "'", '"""', "'''", "\\", "\n", "\r\n", "#", "[", "]", "{", "}", ".", "=", ",", " ", "a",
     "1", "1.5", "a.b", "a = 1\n", "[a]\n", "[[a]]\n"]
)  # fmt: skip


@given(st.lists(_FRAGMENTS, max_size=30).map("".join))
def test_the_bounds_refuse_nothing_that_is_within_them(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(TomlError, match="it is not TOML"):
            parse_toml(text)
    else:
        if text.count(".") < MAX_PARTS:
            assert parse_toml(text) == expected


@pytest.mark.parametrize(
    "fragment",
    [
        '"', "'", '\\"', '"""', '""" ', "'''", "[", "[ ", "]", ".", "a.", " ", "a", "{", "#",
        "a.b=1\n", "\n", '"a', "=", "\r", "\\",
    ],
)  # fmt: skip
def test_time_is_in_proportion_for_any_repetition(fragment: str) -> None:
    # Quadratic time ends at the time limit of tests.
    document: dict[str, Any] = {}
    with suppress(TomlError):
        document = parse_toml(fragment * (MAX_BYTES // len(fragment)))
    assert document.keys() <= {"a"}


def test_memory_is_bounded_where_every_key_is_as_long_as_it_may_be() -> None:
    lines = [f"[{_key(MAX_PARTS)}]\n"]
    lines += [f"a{number}.{_key(MAX_PARTS - 1)}=1\n" for number in range(1_000)]
    tracemalloc.start()
    try:
        parse_toml("".join(lines))
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()

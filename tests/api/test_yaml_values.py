"""YAML as JSON values: what scalars mean, and that no document costs more than its size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.api import bounds
from moorage.api.yaml_values import YamlError, iter_documents, parse_document, parse_documents

_SMALL_STACK_BYTES = 256 * 1024


def _value(text: str) -> Any:
    return parse_document(text).value


def _on_small_stack(step: Callable[[], Any]) -> Any:
    """The step's result, or its error, from a thread with a stack of 256 KiB."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(step())
        except Exception as error:
            outcome.append(error)

    before = threading.stack_size(_SMALL_STACK_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    return outcome[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("[yes, No, on, OFF, true, y, n]", [True, False, True, False, True, "y", "n"]),
        ("[~, null, '']\n", [None, None, ""]),
        ("a:\nb:", {"a": None, "b": None}),
        ("[010, 0o17, 0x1F, 0b11, 1_000, -5, +5]", [8, 15, 31, 3, 1000, -5, 5]),
        ("[1.5, 1e3, .5, 08, 1.0]", [1.5, 1000, 0.5, 8, 1]),
        ("[22:22, 2001-01-01, 1.2.3, 1e, 0x, _1, '5', \"6\"]",
         ["22:22", "2001-01-01", "1.2.3", "1e", "0x", "_1", "5", "6"]),
        ("[9223372036854775807, 18446744073709551615]", [2**63 - 1, 2**64 - 1]),
        ("[12345678901234567890123]", [12345678901234567890123.0]),
        ("[!!str 5, !!int '5', !!float 5, ! 5]", ["5", 5, 5, "5"]),
        ("{1: a, true: b, 1.5: c}", {"1": "a", "true": "b", "1.5": "c"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("? a\n: b", {"a": "b"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 5}", {"a": {"k": 1, "l": 2}, "b": {"k": 5, "l": 2}}),
        ("a: &x {k: 1}\nb: &y {k: 2, m: 3}\nc: {<<: [*x, *y]}",
         {"a": {"k": 1}, "b": {"k": 2, "m": 3}, "c": {"k": 1, "m": 3}}),
        ("{'<<': 1}", {"<<": 1}),
        ("", None),
        ("%YAML 1.1\n---\na: 1", {"a": 1}),
    ],
)  # fmt: skip
def test_what_a_document_means(text: str, value: Any) -> None:
    assert _value(text) == value


def test_what_an_alias_names_is_copied() -> None:
    value = _value("a: &x {k: [1]}\nb: *x")
    value["b"]["k"].append(2)
    assert value["a"] == {"k": [1]}


def test_keys_that_a_map_has_twice_are_named_with_their_lines() -> None:
    document = parse_document("a: 1\nb:\n  c: 1\n  c: 2\na: 3")
    assert document.value == {"a": 3, "b": {"c": 2}}
    assert document.repeated == [
        'line 4: key "c" already set in map',
        'line 5: key "a" already set in map',
    ]


def test_at_most_a_hundred_repeated_keys_are_named() -> None:
    assert len(parse_document("a: 1\n" * 500).repeated) == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line "),
        ("a\n---\nb", "single document"),
        ("? [a]\n: b", "a map key must be a scalar"),
        ("? {a: 1}\n: b", "a map key must be a scalar"),
        ("~: b", "a map key must be"),
        ("a: &x [*x]", "anchor 'x' value contains itself"),
        ("a: *x", "unknown anchor 'x'"),
        ("a: .inf", "has no JSON form"),
        ("a: !!binary aGk=", "has no JSON form"),
        ("a: !!python/object:os.system x", "has no JSON form"),
        ("a: !!int x", "has no JSON form"),
        ("a: !!set {b}", "has no JSON form"),
        ("{<<: [1]}", "map merge requires map"),
        ('a: "\\ud800"', "invalid Unicode"),
        ("a: \0", "control characters"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_document(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_must_be_utf8() -> None:
    with pytest.raises(YamlError, match="invalid UTF-8 at byte 3"):
        parse_document(b"a: \xff")
    with pytest.raises(YamlError, match="invalid UTF-8"):
        parse_document("a: 1".encode("utf-16"))


def _nested(level: str) -> str:
    """Ten levels in a few hundred bytes, each nine of the one before."""
    text, before = "a: &a {k: 1, l: [1]}\n", "a"
    for name in "bcdefghijk":
        text += f"{name}: &{name} {level % ','.join([f'*{before}'] * 9)}\n"
        before = name
    return text


def test_nested_merges_cost_what_they_say() -> None:
    text = _nested("{<<: [%s]}")
    assert len(text) < 600
    assert _value(text)["k"] == {"k": 1, "l": [1]}


def test_nested_aliases_are_refused() -> None:
    with pytest.raises(YamlError, match="excessive aliasing"):
        parse_document(_nested("[%s]"))


def test_a_long_text_that_is_repeated_by_alias_is_refused() -> None:
    with pytest.raises(YamlError, match="excessive aliasing"):
        parse_document("a: &a " + "x" * 1_000_000 + "\nb: [*a, *a, *a, *a]")


def test_a_merge_of_many_maps_is_linear() -> None:
    # 20,000 merges into a map of 20,000 keys: with a copy for each it would take minutes.
    keys = ",".join(f"k{number}: 1" for number in range(20_000))
    merges = ",".join(["{x: 1}"] * 20_000)
    assert len(_value(f"{{<<: [{{{keys}}},{merges}]}}")) == 20_001


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? ", "[{a: "])
@pytest.mark.parametrize("times", [101, 60_000, 1_000_000])
def test_depth_is_bounded_before_anything_is_built(opening: str, times: int) -> None:
    error = _on_small_stack(lambda: parse_document(opening * times))
    assert isinstance(error, YamlError)


def test_as_deep_as_allowed_on_a_small_stack() -> None:
    depth = bounds.MAX_DEPTH
    text = "[" * depth + "]" * depth
    value = _on_small_stack(lambda: parse_document(text)).value
    for _ in range(depth - 1):
        value = value[0]
    assert value == []


def test_aliases_do_not_get_around_the_depth() -> None:
    with pytest.raises(YamlError, match="exceeded max depth"):
        parse_document("a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60)


@pytest.mark.slow
@pytest.mark.parametrize("item", ["- \n", "- a\n", "- {}\n", "? a\n", "a: 1\n", "- &a x\n"])
def test_the_number_of_values_is_bounded(item: str) -> None:
    with pytest.raises(YamlError, match="more than 150000 values"):
        parse_document(item * 300_000)


@pytest.mark.slow
def test_tag_directives_are_bounded() -> None:
    # libyaml compares each with all before it, in one call that nothing can interrupt.
    directives = "".join(f"%TAG !a{number}! b\n" for number in range(200_000))
    with pytest.raises(YamlError, match="too many directives"):
        parse_document(directives + "--- a")
    for line_end in ("\r", "\x85", "\u2028", "\u2029", "\ufeff"):
        with pytest.raises(YamlError, match="too many directives"):
            parse_document(directives.replace("\n", line_end) + "--- a")


def test_several_documents() -> None:
    assert parse_documents("a: 1\n---\n---\n[b]\n") == [{"a": 1}, None, ["b"]]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_what_a_dumper_writes_is_read_back(value: Any) -> None:
    assert _value(yaml.safe_dump(value)) == value


_TEXTS = st.text() | st.text(alphabet="-[]{},:?&*a!|>%#'\"\n <1~", max_size=60)


@given(_TEXTS)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    output = ""
    try:
        parse_documents(text)
    except YamlError as error:
        output = str(error)
    assert "\n" not in output


_WORDS: dict[str, Any] = {
    "~ null Null NULL": None,
    "yes Yes YES true True TRUE on On ON": True,
    "no No NO false False FALSE off Off OFF": False,
}


@pytest.mark.parametrize(
    ("word", "value"),
    [(word, value) for words, value in _WORDS.items() for word in words.split()]
    + [(word, word) for word in ("nULL", "yEs", "tRUE", "oN", "y", "n", "None", "+", ".")],
)
def test_words(word: str, value: Any) -> None:
    assert parse_document(f"a: {word}".encode()).value == {"a": value}


@pytest.mark.parametrize("sign", ["", "+", "-"])
@pytest.mark.parametrize("word", [".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"])
def test_numbers_that_json_has_not(sign: str, word: str) -> None:
    if sign and "n" in word.lower()[1:2] and word.lower() == ".nan":
        # Not a number has no sign: it is text.
        assert parse_document(f"{sign}{word}".encode()).value == f"{sign}{word}"
        return
    with pytest.raises(YamlError):
        parse_document(f"{sign}{word}".encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0b101", 5), ("-0b101", -5), ("017", 15), ("0o17", 15), ("0x1F", 31), ("-0x1f", -31),
        ("1_000", 1000), ("+7", 7), ("-0", 0), ("0", 0), ("08", 8), ("1.5", 1.5), (".5", 0.5),
        ("5.", 5), ("1e3", 1000), ("-1.5e-1", -0.15), ("1e20", 10**20), ("1e21", 1e21),
        ("-1e21", -1e21), (str(2**64 - 1), 2**64 - 1), (str(-(2**63)), -(2**63)),
        (str(2**64), float(2**64)), (str(-(2**63) - 1), float(-(2**63))), ("1e999", "1e999"),
        ("0x", "0x"), ("0b2", "0b2"), ("1.2.3", "1.2.3"), ("1e", "1e"), ("+-1", "+-1"),
        ("9" * 400, "9" * 400), ("0" * 399 + "7", 7), ("0" * 400 + "7", "0" * 400 + "7"),
        ("2026-01-01", "2026-01-01"),
    ],
)  # fmt: skip
def test_numbers(text: str, value: Any) -> None:
    result = parse_document(f"a: {text}".encode()).value["a"]
    assert result == value
    assert isinstance(result, str) is isinstance(value, str)


@pytest.mark.parametrize(
    ("text", "key"),
    [("true: 1", "true"), ("no: 1", "false"), ("1: 1", "1"), ("1.5: 1", "1.5"), ("0x10: 1", "16"),
     ('"1": 1', "1")],
)  # fmt: skip
def test_keys_are_written_as_json_writes_them(text: str, key: str) -> None:
    assert parse_document(text.encode()).value == {key: 1}


def test_documents_share_nothing() -> None:
    first, second = iter_documents("a: &x 1\na: 2\n---\nb: 1")
    assert (first.value, len(first.repeated)) == ({"a": 2}, 1)
    assert (second.value, second.repeated) == ({"b": 1}, [])
    with pytest.raises(YamlError, match="unknown anchor 'x'"):
        parse_documents("a: &x 1\n---\nb: *x")


def test_aliases_may_add_so_much_and_no_more() -> None:
    # As JSON it is a mebibyte, with its quotes.
    anchored = "a: &x " + "y" * ((1 << 20) - 2)
    value = _value(f"{anchored}\nb: [*x, *x, *x]")
    assert value["b"] == [value["a"]] * 3
    with pytest.raises(YamlError, match="excessive aliasing"):
        parse_document(f"{anchored}\nb: [*x, *x, *x, 1]\nc: &z z\nd: *z")


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"])
def test_so_many_values_are_taken(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_VALUES", 10)
    item = "{}" if "<<" in form else "1"
    # The containers and the merge key are values too.
    most = 9 if item == "1" else 7
    for count in (most, most + 1):
        text = form.replace("{}", ",".join([item] * count)).replace("{{", "{").replace("}}", "}")
        if count == most:
            parse_document(text)
        else:
            with pytest.raises(YamlError, match="values"):
                parse_document(text)


def test_aliases_count_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_VALUES", 6)
    text = "[&x 1, *x, *x, *x"
    assert _value(f"{text}, *x]") == [1] * 5
    with pytest.raises(YamlError, match="values"):
        parse_document(f"{text}, *x, *x]")


def test_so_many_directives_are_taken() -> None:
    directives = [f"%TAG !a{number}! b\n" for number in range(17)]
    assert _value("".join(directives[:16]) + "--- a") == "a"
    with pytest.raises(YamlError, match="too many directives"):
        parse_document("".join(directives) + "--- a")


@pytest.mark.parametrize(("length", "shown"), [(100, "x" * 100), (101, "x" * 100 + "...")])
def test_long_names_are_cut_in_errors(length: int, shown: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_document("a: 1\nb: *" + "x" * length)
    assert str(caught.value) == f"line 2: unknown anchor '{shown}' referenced"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!null ~", None), ("!!null ''", None), ("!!bool yes", True), ("!!bool 'no'", False),
        ("!!int 0x10", 16), ("!!float 1.5", 1.5), ("!!float 1", 1), ("!!str true", "true"),
        ("!!map {a: 1}", {"a": 1}), ("!!seq [1]", [1]), ("! {a: 1}", {"a": 1}), ("! [1]", [1]),
        ("!!null x", YamlError), ("!!bool 1", YamlError), ("!!int 1.5", YamlError),
        ("!!int yes", YamlError), ("!!float x", YamlError), ("!!float yes", YamlError),
        ("!!omap [a: 1]", YamlError), ("!mine x", YamlError), ("!mine {a: 1}", YamlError),
    ],
)  # fmt: skip
def test_tags(text: str, value: Any) -> None:
    if value is YamlError:
        with pytest.raises(YamlError, match=r"line 2: a value tagged .* has no JSON form"):
            parse_document(f"a:\n  {text}")
        return
    result = _value(f"a:\n  {text}")["a"]
    assert (result, type(result)) == (value, type(value))


def test_errors_name_their_line() -> None:
    for text, line in (("a: 1\nb: .inf", 2), ("a:\n  ? [x]\n  : 1", 2), ("a: 1\n~: 2", 2),
                       ("a: 1\n<<: [1]", 2), ("a:\n b\n  c: [", 3)):  # fmt: skip
        with pytest.raises(YamlError, match=f"^line {line}: "):
            parse_document(text)

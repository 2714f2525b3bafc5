"""Tables for people: what fits, what is wrapped, what is left out."""

from __future__ import annotations

import json

import pytest
import yaml

from moorage.cli.output import WIDTH, dim, show, table

LONG = "a sentence that goes on " * 12


def test_a_table_with_notes_fits_its_width_and_drops_empty_ones() -> None:
    rows = [
        {"subject": "first", "meaning": LONG},
        {"subject": "second", "meaning": "short"},
        {"subject": "third", "meaning": ""},
    ]
    notes = [[f"→ {LONG}"], [], ["/etc/a.toml", "why"]]
    lines = table(rows, ("subject", "meaning"), notes).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[-4:] == ["second    short", "third     -", "    /etc/a.toml", "    why"]
    assert " ".join(LONG.split()) in " ".join(" ".join(lines).split())
    assert not any(line.endswith("- ") for line in lines)


def test_a_word_longer_than_the_width_stays_whole() -> None:
    path = "/" + "x" * 150
    assert path in table([{"a": "b"}], ("a",), [[path]])


def test_without_notes_the_last_column_is_as_wide_as_it_likes() -> None:
    assert LONG.strip() in table([{"a": LONG}], ("a",))


ROWS = [
    {"name": "ok", "is": True, "of": ("a", 1), "more": {"x": None}},
    {"name": "", "is": False, "of": []},
]


def test_cells_are_aligned_and_what_is_empty_is_a_dash() -> None:
    assert table(ROWS, ("name", "is", "of", "no_such")).splitlines() == [
        "NAME   IS    OF     NO SUCH",
        "ok     yes   a, 1   -",
        "-      no    -      -",
    ]
    assert table([], ("name", "is")) == "NAME   IS"


def test_documents_have_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ("name",), "json")
    output = capsys.readouterr().out
    assert json.loads(output) == [{**ROWS[0], "of": ["a", 1]}, ROWS[1]]
    assert output.startswith('[\n  {\n    "name": "ok",')
    show(ROWS, ("name",), "yaml")
    output = capsys.readouterr().out
    assert yaml.safe_load(output) == [{**ROWS[0], "of": ["a", 1]}, ROWS[1]]
    assert output.startswith("- name: ok\n  is: true\n")
    assert output.endswith("of: []\n")
    show(ROWS, ("name",), "table", notes=[["n"], []])
    assert capsys.readouterr().out == "NAME\nok\n    n\n-\n"
    show(ROWS, ("name",), "table")
    assert capsys.readouterr().out == "NAME\nok\n-\n"


WORDS = ("Ready", "problem", "Pending", "other")


def coloured(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, no_colour: str = "") -> str:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setenv("NO_COLOR", no_colour)
    return table([{"word": word} for word in WORDS], ("word",))


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert coloured(monkeypatch, is_terminal=True).splitlines() == [
        "\x1b[1mWORD\x1b[0m",
        "\x1b[32mReady\x1b[0m",
        "\x1b[31mproblem\x1b[0m",
        "\x1b[33mPending\x1b[0m",
        "other",
    ]
    assert dim("x") == "\x1b[2mx\x1b[0m"
    plain = "WORD\nReady\nproblem\nPending\nother"
    assert coloured(monkeypatch, is_terminal=False) == plain
    assert coloured(monkeypatch, is_terminal=True, no_colour="1") == plain
    assert dim("x") == "x"


def test_a_table_with_notes_leaves_the_last_column_some_width() -> None:
    first = "x" * (WIDTH - 10)
    lines = table([{"a": first, "b": "one two three four ab six"}], ("a", "b"), [[]]).splitlines()
    start = len(first) + 3
    assert lines[1:] == [f"{first}   one two three four", f"{' ' * start}ab six"]


def test_the_last_column_ends_at_the_width_and_is_padded_before_it() -> None:
    rows = [{"a": "aa", "b": "bb", "c": "word " * 40}]
    lines = table(rows, ("a", "b", "c"), [[]]).splitlines()
    # What stands before it is 10 wide: 90 columns are 18 words.
    assert lines == [
        "A    B    C",
        f"aa   bb   {' '.join(['word'] * 18)}",
        f"{' ' * 10}{' '.join(['word'] * 18)}",
        f"{' ' * 10}{' '.join(['word'] * 4)}",
    ]


def test_control_characters_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a\x1b[31m", "why": ["\u202eb", "\x9b2J"]}]
    show(rows, ["name", "why"], "table", notes=[["see\x07 here"]])
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert r"a\x1b[31m" in shown
    assert r"see\x07 here" in shown
    for output in ("json", "yaml"):
        show(rows, ["name"], output)
        shown = capsys.readouterr().out
        assert shown.replace("\n", "").isprintable()
        assert yaml.safe_load(shown) == rows

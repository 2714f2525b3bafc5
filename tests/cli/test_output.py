"""Tables for people: what fits, what is wrapped, what is left out."""

from __future__ import annotations

from moorage.cli.output import WIDTH, table

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

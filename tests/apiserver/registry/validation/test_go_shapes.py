"""Differences of objects, as messages show them."""

from __future__ import annotations

from moorage.apiserver.registry.validation.go_shapes import difference, volume_claim_spec


def test_a_difference_is_that_of_indented_lines_without_file_names() -> None:
    before, after = ({"Name": "a", "Size": size, "Modes": None} for size in (1, 2))
    assert difference(before, after) == (
        '@@ -1,5 +1,5 @@\n {\n  "Name": "a",\n- "Size": 1,\n+ "Size": 2,\n  "Modes": null\n }\n'
    )
    assert difference(before, before) == ""


def test_only_the_first_lines_are_compared() -> None:
    modes = [f"Mode{number}" for number in range(10_000)]
    before, after = (
        volume_claim_spec({"accessModes": [*modes, last], "volumeName": last}) for last in "ab"
    )
    assert difference(before, after) == ""

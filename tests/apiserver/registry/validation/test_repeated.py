from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.validation.repeated import repeated


class Counted(str):
    """A text that counts how often it is compared."""

    comparisons = 0

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, str(other))

    def __hash__(self) -> int:
        return str.__hash__(self)


@given(st.lists(st.sampled_from("abc")))
def test_places_of_what_stands_earlier(values: list[str]) -> None:
    expected = {place for place, value in enumerate(values) if value in values[:place]}
    assert repeated(values) == expected


def test_a_long_list_is_compared_once() -> None:
    Counted.comparisons = 0
    assert repeated(Counted(f"a{index}") for index in range(2000)) == frozenset()
    assert Counted.comparisons < 2000

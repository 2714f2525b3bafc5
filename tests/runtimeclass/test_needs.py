"""The vocabulary of needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimeclass.features import FEATURES
from moorage.runtimeclass.isolation import LEVELS, Isolation
from moorage.runtimeclass.needs import NO_NEEDS, Needs, NeedsError, needs_of, parse_needs, united

WORDS = [
    *(f"isolation={level}" for level in LEVELS),
    "isolation=kernel",
    "network=none",
    *(name for name in FEATURES if name != "host-network"),
]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", NO_NEEDS),
        (" , ,, ", NO_NEEDS),
        ("isolation=kernel", Needs(Isolation.USER_SPACE_KERNEL)),
        ("isolation=kernel, isolation=virtual-machine", Needs(Isolation.VIRTUAL_MACHINE)),
        ("network=none", Needs(features=frozenset(["no-network"]))),
        ("gpu,host-network", Needs(features=frozenset(["gpu", "host-network"]))),
        ("gpu\n gpu\tisolation=shared-kernel", Needs(Isolation.SHARED_KERNEL, frozenset(["gpu"]))),
    ],
)
def test_words_are_understood(text: str, needs: Needs) -> None:
    assert parse_needs(text) == needs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("isolaton=kernel", "unknown need 'isolaton=kernel'; the needs are isolation=LEVEL"),
        ("gpu isolation=", "unknown need 'isolation='"),
        ("GPU", "unknown need 'GPU'"),
        ("network=host", "unknown need 'network=host'"),
        ("network=none, host-network", "network=none and host-network contradict each other"),
        ("x" * 200_000, "unknown need '" + "x" * 80 + "...'"),
        ("gpu " * 65, "there are more than 64 needs"),
        (" " * 200_000 + "y", "unknown need 'y'"),
    ],
    ids=range(8),
)
def test_what_is_no_need_is_named(text: str, said: str) -> None:
    with pytest.raises(NeedsError) as error:
        parse_needs(text)
    assert said in str(error.value)
    assert len(str(error.value)) < 2000


def test_an_error_shows_the_vocabulary() -> None:
    with pytest.raises(NeedsError, match=r"kernel, shared-kernel.*network=none.*gpu.*syscall-NAME"):
        parse_needs("gpus")


@given(st.lists(st.sampled_from(WORDS), max_size=10))
def test_the_text_of_needs_has_their_meaning(words: list[str]) -> None:
    needs = needs_of(words)
    assert parse_needs(str(needs)) == needs


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_order_and_grouping_of_needs_do_not_matter(words: list[str]) -> None:
    shuffled = sorted(words, reverse=True)
    whole = needs_of(words)
    assert needs_of(shuffled) == whole
    assert united([needs_of(words[:2]), needs_of(words[2:]), whole]) == whole

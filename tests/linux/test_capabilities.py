from __future__ import annotations

import pytest

from moorage.linux.capabilities import NAMES, NEEDED, effective_capabilities


def status(mask: str) -> str:
    return f"Name:\tmoor\nCapInh:\tffffffffffffffff\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        ("0000000000000000", frozenset()),
        ("0000000000000001", {"CAP_CHOWN"}),
        ("0000000000200000", {"CAP_SYS_ADMIN"}),
        ("0000000001001000", {"CAP_NET_ADMIN", "CAP_SYS_RESOURCE"}),
        ("0000010000000000", {"CAP_CHECKPOINT_RESTORE"}),
        ("000001ffffffffff", set(NAMES)),
        ("ffffffffffffffff", set(NAMES)),
    ],
)
def test_only_the_effective_set_counts(mask: str, wanted: set[str]) -> None:
    assert effective_capabilities(status(mask)) == wanted


def test_a_status_without_the_line_gives_none() -> None:
    assert effective_capabilities("Name:\tmoor\n") == frozenset()


def test_all_that_an_engine_needs_has_a_number() -> None:
    assert set(NEEDED) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)

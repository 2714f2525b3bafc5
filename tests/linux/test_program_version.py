"""Versions as programs print them."""

from __future__ import annotations

import pytest

from moorage.linux.program import Version, parse_version

PRINTED = (
    ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\nspec: 1.0.2-dev\n", (1, 1, 5), "1.1.5+ds1"),
    ("crun version 1.8.1\ncommit: f8a096be\nspec: 1.0.0\n+SYSTEMD\n", (1, 8, 1), "1.8.1"),
    ("runsc version release-20250319.0\nspec: 1.1.0\n", (20250319, 0), "20250319.0"),
    ("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", (0, 0), "0.0~20221219.0"),
    (
        "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n",
        (1, 6, 20),
        "1.6.20~ds1",
    ),
    ("containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7\n", (2, 1, 4), "2.1.4"),
    ("containerd containerd.io 1.7.27 05044ec\n", (1, 7, 27), "1.7.27"),
    (
        'Kata Containers containerd shim (Golang): id: "io.containerd.kata.v2", version: 3.2.0, '
        "commit: 5d0a\n",
        (3, 2, 0),
        "3.2.0",
    ),
    (
        "containerd-shim-wasmtime-v1:\n  Runtime: wasmtime\n  Version: 0.4.0\n  Revision: ab12\n",
        (0, 4, 0),
        "0.4.0",
    ),
    ("youki 0.5.3\n", (0, 5, 3), "0.5.3"),
    ("iptables v1.8.9 (nf_tables)\n", (1, 8, 9), "1.8.9"),
    ("ip utility, iproute2-6.1.0, libbpf 1.1.0\n", (6, 1, 0), "6.1.0"),
    ("BusyBox v1.35.0 (Debian 1:1.35.0-4+b1) multi-call binary.\n", (1, 35, 0), "1.35.0"),
    ("tini version 0.1.7_catatonit\n", (0, 1, 7), "0.1.7_catatonit"),
)


@pytest.mark.parametrize(("printed", "numbers", "text"), PRINTED)
def test_the_version_is_the_first_number_with_dots(
    printed: str, numbers: tuple[int, ...], text: str
) -> None:
    assert parse_version(printed) == Version(numbers, text)


@pytest.mark.parametrize("printed", ["", "unknown command --version", "CNI bridge plugin unknown"])
def test_what_holds_no_version_has_none(printed: str) -> None:
    assert parse_version(printed) is None


@pytest.mark.parametrize(
    ("version", "limit", "is_before"),
    [
        ("1.8.1", (1, 14, 2), True),
        ("1.14.2", (1, 14, 2), False),
        ("1.14", (1, 14, 2), True),
        ("1.15", (1, 14, 2), False),
        ("2.0", (1, 14, 2), False),
        ("1.14.2", (1, 14), False),
    ],
)
def test_versions_compare_by_their_numbers(
    version: str, limit: tuple[int, ...], is_before: bool
) -> None:
    parsed = parse_version(f"program {version}")
    assert parsed is not None
    assert parsed.is_before(limit) is is_before

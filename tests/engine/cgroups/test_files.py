from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.cgroups.files import (
    DeviceUsage,
    Pressure,
    Stall,
    devices_v1,
    devices_v2,
    number,
    numbers,
    pressure,
    read,
)

SOME = "some avg10=1.50 avg60=0.25 avg300=0.00 total=7"


@pytest.mark.parametrize(
    ("text", "value"),
    [("7\n", 7), ("0", 0), ("max\n", None), ("9223372036854771712\n", None), ("-1\n", None),
     ("", None), ("7 8", None), ("²", None), ("18446744073709551615", None)],
)  # fmt: skip
def test_a_files_number(text: str, value: int | None) -> None:
    assert number(text) == value


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.integers(0, 2**61)))
def test_numbers_by_their_keys(values: dict[str, int]) -> None:
    assert numbers("".join(f"{key} {value}\n" for key, value in values.items())) == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SOME}\nfull avg10=0.00 avg60=0.00 avg300=2.00 total=3\n",
         Pressure(Stall(7000, 1.5, 0.25, 0.0), Stall(3000, 0.0, 0.0, 2.0))),
        (SOME, Pressure(Stall(7000, 1.5, 0.25, 0.0), Stall(0, 0.0, 0.0, 0.0))),
        ("", None),
        ("some avg10=x total=1", None),
        ("some total=1", None),
    ],
)  # fmt: skip
def test_stall_time_is_read_in_nanoseconds(text: str, expected: Pressure | None) -> None:
    assert pressure(text) == expected


def test_devices_of_version_two() -> None:
    text = "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n253:1 \nodd\n"
    assert devices_v2(text) == (DeviceUsage(8, 0, 1, 2, 3, 4), DeviceUsage(253, 1))


def test_devices_of_version_one() -> None:
    sizes = "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Total 3\n253:1 Read 5\nTotal 8\n"
    counts = "8:0 Read 3\n8:0 Write 4\nTotal 7\n"
    devices = devices_v1(sizes, counts)
    assert devices == (DeviceUsage(8, 0, 1, 2, 3, 4), DeviceUsage(253, 1, 5))


@pytest.mark.parametrize(
    "parse", [numbers, pressure, devices_v2, lambda text: devices_v1(text, text)]
)
@given(
    text=st.text(alphabet=st.sampled_from("some full:=0123456789.avgtotal-\n\t é²"), max_size=80)
)
def test_malformed_text_does_not_raise(parse: Callable[[str], object], text: str) -> None:
    parse(text)


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read(f"{tmp_path}/gone") == ""
    assert read(str(tmp_path)) == ""


def test_the_largest_number_is_below_version_ones_no_limit() -> None:
    assert number(str((1 << 62) - 1)) == (1 << 62) - 1
    assert number(str(1 << 62)) is None

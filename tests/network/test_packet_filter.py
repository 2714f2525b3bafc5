"""Packet filter: changes in order, and whole tables where the kernel refuses a change."""

from __future__ import annotations

import pytest

from moorage.linux.nftables import NftablesError
from moorage.network.frame import IPV4
from moorage.network.packet_filter import PacketFilter
from moorage.network.tables import EMPTY, Fragment, Table
from tests.network.kernel import FakeKernel

ONE = Fragment(elements={"s": {"10.0.0.1": ""}})


def element(number: int) -> Fragment:
    return Fragment(elements={"s": {f"10.0.0.{number}": ""}})


def packet_filter() -> tuple[PacketFilter, FakeKernel]:
    kernel = FakeKernel()
    return PacketFilter(kernel, {IPV4: Table("ip", "t", "set s { type ipv4_addr; }")}), kernel


async def test_the_first_change_writes_the_whole_table() -> None:
    rules, kernel = packet_filter()
    await rules.apply([(IPV4, "a", ONE)])
    await rules.apply([(IPV4, "b", ONE)])
    await rules.apply([(IPV4, "b", EMPTY), (IPV4, "a", EMPTY)])
    first, last = kernel.scripts
    assert first.startswith("add table ip t\ndelete table ip t\n")
    assert last.startswith("delete element ip t s { 10.0.0.1 }\n")


async def test_a_refused_change_has_the_table_written_again() -> None:
    rules, kernel = packet_filter()
    await rules.write()
    kernel.refuses = ["No such file or directory"]
    await rules.apply([(IPV4, "a", ONE)])
    assert kernel.scripts[1] == "add element ip t s { 10.0.0.1 }\n"
    assert kernel.scripts[2].startswith("add table ip t")
    assert "add element ip t s { 10.0.0.1 }" in kernel.scripts[2]


async def test_what_the_kernel_refuses_is_left_out_alone() -> None:
    rules, kernel = packet_filter()
    await rules.write([(IPV4, str(number), element(number)) for number in range(20)])
    kernel.refuses_scripts_with = "10.0.0.77"
    await rules.apply([(IPV4, "bad", element(77)), (IPV4, "good", element(78))])
    assert "10.0.0.78" in kernel.scripts[-1]
    assert "10.0.0.77" not in kernel.scripts[-1]
    assert "10.0.0.19" in kernel.scripts[-1]
    assert rules.refusal("bad") == "no space"
    assert rules.refusal("good") == ""
    # What comes in its place is tried.
    await rules.apply([(IPV4, "bad", element(79))])
    assert kernel.scripts[-1] == "add element ip t s { 10.0.0.79 }\n"
    assert rules.refusal("bad") == ""


async def test_what_the_kernel_refuses_twice_is_an_error_and_written_next_time() -> None:
    rules, kernel = packet_filter()
    await rules.write()
    kernel.refuses = ["no", "no again"]
    with pytest.raises(NftablesError, match="no again"):
        await rules.apply([(IPV4, "a", ONE)])
    await rules.apply([])
    assert "add element ip t s { 10.0.0.1 }" in kernel.scripts[-1]
    assert kernel.scripts[-1].startswith("add table ip t")


async def test_a_table_that_another_program_removed_is_written_again() -> None:
    rules, kernel = packet_filter()
    await rules.write()
    assert not await rules.repair()
    kernel.numbers = ()
    assert await rules.repair()
    assert kernel.scripts[-1] == kernel.scripts[0]

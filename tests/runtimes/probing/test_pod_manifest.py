"""Names of probes' classes: each its own, never longer than the API takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.names import SUBDOMAIN_MAX, dns_subdomain_errors
from moorage.runtimes.probing.pod_manifest import kept_node, probe_class_name

_HANDLERS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
_NODES = st.lists(_HANDLERS, min_size=1, max_size=3).map(".".join)


def test_the_name_has_handler_and_node() -> None:
    assert probe_class_name("n1.example", "runsc") == "moorage-probe-runsc.n1.example"


@pytest.mark.parametrize("length", [176, 200, 217, 218, 219, 228])
def test_a_handler_that_makes_the_name_too_long_is_cut_and_has_a_hash(length: int) -> None:
    node = "n" * length
    names = {probe_class_name(node, "h" * 62 + last) for last in "abc"}
    assert len(names) == 3
    for name in names:
        assert len(name) <= SUBDOMAIN_MAX
        assert name.startswith("moorage-probe-")
        assert name.partition(".")[2] == node


@pytest.mark.parametrize("length", [229, 238, SUBDOMAIN_MAX])
@pytest.mark.parametrize("first_kept", [".", "-", "e"])
def test_a_node_that_makes_the_name_too_long_is_cut_and_has_a_hash(
    length: int, first_kept: str
) -> None:
    end = first_kept + "e" * 226
    nodes = [first + "n" * (length - len(end) - 1) + end for first in "ab"]
    names = {probe_class_name(node, handler) for node in nodes for handler in ("runc", "h" * 63)}
    assert len(names) == 4
    for name in names:
        assert not dns_subdomain_errors(name)
        assert len(name) == SUBDOMAIN_MAX
        assert name.startswith("moorage-probe-")
        assert name.partition(".")[2] == kept_node(nodes[0]) == f"x{end}"


@given(_NODES, _HANDLERS, _NODES, _HANDLERS)
def test_names_are_valid_and_differ(node: str, handler: str, other: str, another: str) -> None:
    name = probe_class_name(node, handler)
    assert name.partition(".")[2] == node
    assert len(name) <= SUBDOMAIN_MAX
    assert not dns_subdomain_errors(name)
    if (node, handler) != (other, another):
        assert name != probe_class_name(other, another)

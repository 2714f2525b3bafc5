"""Properties: what an outcome proves of each, the forged ones among them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimeclass.conformance import PROPERTIES, STANDARD_CLASSES
from moorage.runtimeclass.conformance.outcomes import NodeFacts, Outcome, printable
from moorage.runtimeclass.conformance.properties import (
    Probe,
    UnknownStandardError,
    properties_of,
    standard_class,
)
from moorage.runtimeclass.conformance.results import judge

NODE = NodeFacts(name="n1", kernel="6.18.0", boot_id="aaaa-bbbb", addresses=("10.0.0.1",))
HOST = "release=6.18.0\nboot=aaaa-bbbb\nversion=Linux\ndevice=0000:00:01.0\n"
GVISOR = "release=4.4.0\nversion=Linux version 4.4.0\n"
KATA = "release=6.12.0\nboot=cccc-dddd\ndevice=virtio0\n"
SAME_RELEASE = "release=6.18.0\nboot=cccc-dddd\ndevice=virtio0\n"
LIAR = "release=9.9-sandboxed\nboot=AAAA-BBBB\n"
FORGED_BOOT = "boot=eeee-ffff\n" + HOST
SILENT = ""

TABLE: list[tuple[str, dict[str, Any], bool]] = [
    ("runs", {"output": "proof=moorage\n", "exit_code": 7}, True),
    ("runs", {"output": "proof=moorage\n", "exit_code": 0}, False),
    ("runs", {"output": "", "exit_code": 7}, False),
    ("own-files", {"output": "back=moorage\n"}, True),
    ("own-files", {"output": "back=\n"}, False),
    ("own-processes", {"output": "self=1\nprocess=1\n"}, True),
    ("own-processes", {"output": "self=1\n" + "process=1\n" * 300}, False),
    ("own-processes", {"output": "self=4711\nprocess=4711\n"}, False),
    ("own-processes", {"output": "self=1\n"}, False),
    ("own-network", {"output": "interface=lo\ninterface=eth0\n", "pod_ip": "10.1.0.2"}, True),
    ("own-network", {"output": "interface=lo\ninterface=eth0\n", "pod_ip": "10.0.0.1"}, False),
    ("own-network", {"output": "interface=lo\n", "pod_ip": "10.1.0.2"}, False),
    ("no-network", {"output": "interface=lo\napi=unreachable\n"}, True),
    ("no-network", {"output": ""}, True),
    ("no-network", {"output": "interface=lo\napi=reached\n"}, False),
    ("no-network", {"output": "interface=lo\ninterface=eth0\n"}, False),
    ("no-network", {"output": "interface=lo\n", "exit_code": 1}, False),
    ("memory-limit", {"output": "began=yes\n", "exit_code": 137}, True),
    ("memory-limit", {"output": "began=yes\n", "exit_code": 1, "reason": "OOMKilled"}, True),
    ("memory-limit", {"output": "began=yes\nsurvived=yes\n", "exit_code": 0}, False),
    ("memory-limit", {"output": "began=yes\n", "exit_code": 1}, False),
    ("memory-limit", {"output": "", "exit_code": 137}, False),
    ("confined-root", {"output": "mount=refused\ndisk=refused\nsysctl=refused\n"}, True),
    ("confined-root", {"output": "disk=read\nsysctl=refused\n"}, False),
    ("confined-root", {"output": "disk=refused\nsysctl=written\n"}, False),
    ("confined-root", {"output": ""}, False),
    ("no-native-programs", {"output": "native=yes\n"}, False),
    ("no-native-programs", {"output": "", "exit_code": 1}, True),
    ("no-native-programs", {"has_ended": False, "error": "exec format error"}, True),
    ("no-native-programs", {"has_ended": False}, False),
    ("wasm-programs", {"exit_code": 0}, True),
    ("wasm-programs", {"exit_code": 1}, False),
    ("wasm-programs", {"has_ended": False, "error": "not found"}, False),
]


def outcome(**values: Any) -> Outcome:
    return Outcome(**{"has_ended": True, "exit_code": 0, "node": "n1", **values})


@pytest.mark.parametrize(("name", "values", "holds"), TABLE)
def test_an_outcome_proves_a_property_or_does_not(
    name: str, values: dict[str, Any], holds: bool
) -> None:
    verdict = judge(PROPERTIES[name], outcome(**values), NODE).verdict.value
    assert verdict == ("passed" if holds else "failed")


@pytest.mark.parametrize(
    ("output", "shared", "own", "machine"),
    [
        (HOST, True, False, False),
        (GVISOR, False, True, False),
        (KATA, False, True, True),
        (SAME_RELEASE, False, True, True),
        (LIAR, True, False, False),
        (FORGED_BOOT, True, False, False),
        # Not even the release: nothing is proved, one way or the other.
        (SILENT, False, False, False),
        ("release=6.18.0\n", True, False, False),
    ],
)
def test_a_kernel_is_the_nodes_by_any_one_sign(
    output: str, shared: bool, own: bool, machine: bool
) -> None:
    names = ("shared-kernel", "own-kernel", "own-machine")
    found = [PROPERTIES[name].read(outcome(output=output), NODE)[0] for name in names]
    assert found == [shared, own, machine]


def test_a_probe_that_was_cut_off_leaves_its_property_untested() -> None:
    for name, tested in PROPERTIES.items():
        if not tested.probe.may_fail:
            result = judge(tested, Outcome(error="cut off after 5 s"), NODE)
            assert (result.verdict.value, result.evidence) == ("untested", "cut off after 5 s"), (
                name
            )


@given(st.sampled_from(list(PROPERTIES.values())), st.text(max_size=300), st.integers(0, 255))
def test_any_output_is_judged(tested: Any, output: str, exit_code: int) -> None:
    result = judge(tested, outcome(output=output, exit_code=exit_code), NODE)
    assert "\n" not in result.evidence
    assert len(result.evidence) <= 513


@given(st.text(st.characters(), max_size=200), st.integers(1, 100))
def test_printable_text_is_bounded_and_legal(text: str, most: int) -> None:
    shown = printable(text, most)
    assert len(shown) <= most + 1
    shown.encode()
    assert not any(ord(one) < 0x20 and one not in "\n\t" for one in shown)
    assert printable(shown, 1000) == shown


def test_every_standard_class_consists_of_known_properties() -> None:
    assert list(STANDARD_CLASSES) == ["native", "sandboxed", "vm-isolated", "wasm", "offline"]
    for standard in STANDARD_CLASSES.values():
        assert standard.properties
        assert set(standard.properties) <= PROPERTIES.keys()
    assert len(properties_of(STANDARD_CLASSES.values())) == len(PROPERTIES)


def test_standards_exclude_each_other_where_they_must() -> None:
    native, sandboxed = STANDARD_CLASSES["native"], STANDARD_CLASSES["sandboxed"]
    machine = STANDARD_CLASSES["vm-isolated"]
    assert "shared-kernel" in native.properties
    assert "own-kernel" in sandboxed.properties
    assert set(sandboxed.properties) < set(machine.properties)


def test_an_unknown_standard_names_the_known_ones() -> None:
    with pytest.raises(UnknownStandardError, match="native, sandboxed, vm-isolated, wasm, offline"):
        standard_class("strong")


def test_scripts_hold_nothing_that_the_api_expands() -> None:
    """`$(NAME)` of a known variable and `$$` are replaced in a container's command."""
    for tested in PROPERTIES.values():
        script = tested.probe.script or ""
        assert "$$" not in script, tested.name


def test_what_a_script_complains_of_stands_in_the_order_of_its_findings() -> None:
    probe = Probe(script="read -r x < /absent || echo found=1\nls /absent\necho found=2\n")
    assert probe.command is not None
    done = subprocess.run(probe.command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert (done.stderr, lines[1], lines[3]) == ("", "found=1", "found=2")
    assert Probe().command is None

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.oci import container_capabilities
from moorage.engine.oci.capabilities import DEFAULT, CapabilitySets
from moorage.linux.capabilities import NAMES
from moorage.wire.cri import pb
from tests.engine.oci.requests import HOST

ALL = frozenset(NAMES)
SHORT = [name.removeprefix("CAP_") for name in NAMES]


def sets(
    add: list[str] | None = None,
    drop: list[str] | None = None,
    ambient: list[str] | None = None,
    *,
    privileged: bool = False,
    own: frozenset[str] = ALL,
    is_virtualised: bool = False,
) -> CapabilitySets:
    asked = pb.Capability(
        add_capabilities=add, drop_capabilities=drop, add_ambient_capabilities=ambient
    )
    context = pb.LinuxContainerSecurityContext(capabilities=asked, privileged=privileged)
    host = replace(HOST, own_capabilities=own)
    return container_capabilities(context, host, is_virtualised=is_virtualised)


@pytest.mark.parametrize(
    ("add", "drop", "expected"),
    [
        ([], [], DEFAULT),
        (["SYS_TIME"], [], DEFAULT | {"CAP_SYS_TIME"}),
        (["CAP_SYS_TIME"], [], DEFAULT | {"CAP_SYS_TIME"}),
        (["sys_time"], [], DEFAULT | {"CAP_SYS_TIME"}),
        ([], ["CHOWN"], DEFAULT - {"CAP_CHOWN"}),
        ([], ["SYS_TIME"], DEFAULT),
        (["ALL"], [], ALL),
        (["ALL"], ["SYS_TIME"], ALL - {"CAP_SYS_TIME"}),
        ([], ["ALL"], frozenset()),
        (["CHOWN"], ["ALL"], {"CAP_CHOWN"}),
        (["CHOWN"], ["CHOWN"], DEFAULT - {"CAP_CHOWN"}),
        (["ALL"], ["ALL"], ALL),
    ],
)
def test_additions_come_before_what_is_dropped(
    add: list[str], drop: list[str], expected: frozenset[str]
) -> None:
    capability_sets = sets(add, drop)
    assert capability_sets.held == expected
    assert capability_sets.ambient == frozenset()


def test_there_are_fourteen_by_default() -> None:
    assert len(DEFAULT) == 14


def test_ambient_ones_are_held_and_inheritable() -> None:
    document = sets(ambient=["SYS_TIME"]).document()
    assert document["ambient"] == document["inheritable"] == ["CAP_SYS_TIME"]
    assert "CAP_SYS_TIME" in document["bounding"]
    assert document["bounding"] == document["effective"] == document["permitted"]


def test_what_is_dropped_is_not_ambient() -> None:
    assert sets(drop=["SYS_TIME"], ambient=["SYS_TIME"]).ambient == frozenset()


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(InvalidError, match="unknown capability 'SYS_MAGIC'"):
        sets(["SYS_MAGIC"])
    with pytest.raises(InvalidError, match="unknown capability 'NOPE'"):
        sets(drop=["NOPE"])


def test_the_engine_gives_no_more_than_it_has() -> None:
    own = ALL - {"CAP_SYS_RESOURCE", "CAP_AUDIT_WRITE"}
    assert sets(privileged=True, own=own).held == own
    assert sets(["ALL"], own=own).held == own
    assert sets(own=own).held == DEFAULT - {"CAP_AUDIT_WRITE"}
    with pytest.raises(InvalidError, match="CAP_SYS_RESOURCE cannot be granted"):
        sets(["SYS_RESOURCE"], own=own)


def test_a_kernel_of_the_runtimes_own_gives_what_the_engine_has_not() -> None:
    capability_sets = sets(["SYS_RESOURCE"], own=frozenset(), is_virtualised=True)
    assert capability_sets.held == DEFAULT | {"CAP_SYS_RESOURCE"}
    everything = sets(privileged=True, own=frozenset(), is_virtualised=True).held
    assert everything == ALL - {"CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}


names = st.lists(st.sampled_from(["ALL", *SHORT]), max_size=6)


@given(names, names, names, st.booleans())
def test_no_set_goes_beyond_the_known_ones(
    add: list[str], drop: list[str], ambient: list[str], privileged: bool
) -> None:
    capability_sets = sets(add, drop, ambient, privileged=privileged)
    assert capability_sets.ambient <= capability_sets.held <= ALL
    document = capability_sets.document()
    assert all(names == sorted(names, key=NAMES.index) for names in document.values())
    if not privileged:
        assert not capability_sets.held & {f"CAP_{name}" for name in drop}

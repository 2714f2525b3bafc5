"""What a class offers, as classes, nodes and profiles come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.offer import Offer, Support
from tests.runtimeclass.indexes import index_of, node, profile, runtime_class


def offer_of(index: ClassIndex, name: str = "a") -> Offer:
    offer = index.find(name)
    assert offer is not None
    return offer


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        ([], Support.UNKNOWN),
        ([profile("n1", "a", has=["gpu"]), profile("n2", "a", has=["gpu"])], Support.EVERYWHERE),
        ([profile("n1", "a", has=["gpu"])], Support.SOMEWHERE),
        ([profile("n1", "a", has=["gpu"]), profile("n2", "a", lacks=["gpu"])], Support.SOMEWHERE),
        ([profile("n1", "a", lacks=["gpu"]), profile("n2", "a", lacks=["gpu"])], Support.NOWHERE),
        ([profile("n1", "a", lacks=["gpu"])], Support.UNKNOWN),
        ([profile("n1", "b", lacks=["gpu"]), profile("n2", "b", lacks=["gpu"])], Support.UNKNOWN),
        # A broken handler's nodes do not count.
        ([profile("n1", "a", has=["gpu"]), profile("n2", "a", works="False")], Support.EVERYWHERE),
        ([profile("n1", "a", has=["gpu"], works="Unknown"),
          profile("n2", "a", works="Unknown")], Support.UNKNOWN),
    ],
)  # fmt: skip
def test_a_feature_is_on_all_some_or_no_nodes(profiles: list[Any], expected: Support) -> None:
    index = index_of(runtime_class("a"), node("n1", "a"), node("n2", "a"), *profiles)
    assert offer_of(index).support("gpu") is expected


def test_the_nodes_of_a_class_match_its_selector_and_have_its_handler() -> None:
    index = index_of(
        runtime_class("a", selector={"zone": "z"}),
        node("n1", "a", labels={"zone": "z"}),
        node("n2", "a"),
        node("n3", "b", labels={"zone": "z"}),
        node("n4", labels={"zone": "z"}),
    )
    # n4 reports no handlers at all: the scheduler tries it too.
    assert offer_of(index).nodes == index.nodes.named("n1") | index.nodes.named("n4")


@pytest.mark.parametrize(
    ("label", "probed", "level"),
    [
        ("", (), None),
        ("virtual-machine", (), Isolation.VIRTUAL_MACHINE),
        ("", ("virtual-machine", "user-space-kernel"), Isolation.USER_SPACE_KERNEL),
        ("", ("virtual-machine", ""), None),
        # A class that claims more than it has, and one that is trusted less than it has.
        ("virtual-machine", ("virtual-machine", "shared-kernel"), Isolation.SHARED_KERNEL),
        ("shared-kernel", ("virtual-machine", "virtual-machine"), Isolation.SHARED_KERNEL),
        ("no-such-level", ("", ""), None),
    ],
)
def test_isolation_is_the_weakest_of_label_and_probes(
    label: str, probed: tuple[str, ...], level: Isolation | None
) -> None:
    index = index_of(
        runtime_class("a", isolation=label),
        node("n0", "a"),
        node("n1", "a"),
        *(profile(f"n{number}", "a", isolation=text) for number, text in enumerate(probed)),
    )
    assert offer_of(index).isolation is level


@pytest.mark.parametrize(
    ("probed", "level"),
    [((), None), (("virtual-machine",), None),
     (("virtual-machine", "user-space-kernel"), Isolation.USER_SPACE_KERNEL)],
)  # fmt: skip
def test_the_label_of_a_managed_class_is_not_believed_since_nodes_led_to_it(
    probed: tuple[str, ...], level: Isolation | None
) -> None:
    index = index_of(
        runtime_class("a", isolation="confidential-vm", is_managed=True),
        node("n0", "a"),
        node("n1", "a"),
        *(profile(f"n{number}", "a", isolation=text) for number, text in enumerate(probed)),
    )
    assert offer_of(index).isolation is level


def test_a_profile_of_another_name_neither_counts_nor_hides_what_the_handlers_own_says() -> None:
    weak = profile("n1", "a", isolation="shared-kernel")
    index = index_of(runtime_class("a", isolation="virtual-machine"), node("n1", "a"), weak)
    for level in ("shared-kernel", "virtual-machine"):
        other = profile("n1", "a", isolation=level)
        index.put_profile(msgspec.structs.replace(other, metadata=ObjectMeta(name="other")))
        assert offer_of(index).isolation is Isolation.SHARED_KERNEL
    index.remove_profile("other")
    assert offer_of(index).isolation is Isolation.SHARED_KERNEL
    index.remove_profile("n1.a")
    assert offer_of(index).isolation is Isolation.VIRTUAL_MACHINE


def test_nodes_that_find_the_same_share_what_is_kept_of_it() -> None:
    index = ClassIndex()
    for number in range(20):
        has = [f"feature-{one}" for one in range(number % 2, 50)]
        index.put_profile(profile(f"n{number}", "a", has=has, lacks=["gpu"]))
        # What a profile says now counts once, also when it says it again.
        index.put_profile(profile(f"n{number}", "a", has=[*has, "terminal"], lacks=["gpu"]))
    assert len({id(kept.supported) for kept in index._profiles.values()}) == 2
    assert len(index._findings) == 2
    for number in range(20):
        index.remove_profile(f"n{number}.a")
    assert len(index._findings) == 0


def test_the_cheapest_class_comes_first() -> None:
    index = index_of(
        runtime_class("vm", isolation="virtual-machine"),
        runtime_class("unknown"),
        runtime_class("b", isolation="shared-kernel", overhead={"memory": "1Mi"}),
        runtime_class("c", isolation="shared-kernel", overhead={"cpu": "1m"}),
        runtime_class("e", isolation="shared-kernel"),
        runtime_class("d", isolation="shared-kernel"),
    )
    assert list(index.offers()) == ["d", "e", "c", "b", "vm", "unknown"]


_NODES = [f"n{number}" for number in range(4)]
_HANDLERS = ["a", "b"]
_FEATURES = ["gpu", "terminal", "exec"]

_EVENTS = st.one_of(
    st.builds(
        lambda name, handlers, zone, cpu: node(name, *handlers, labels={"zone": zone}, cpu=cpu),
        st.sampled_from(_NODES),
        st.lists(st.sampled_from(_HANDLERS), unique=True),
        st.sampled_from(["y", "z"]),
        st.sampled_from(["", "1", "2"]),
    ),
    st.builds(
        lambda name, handler, has, lacks, level, works: profile(
            name, handler, has=has, lacks=lacks - has, isolation=level, works=works
        ),
        st.sampled_from(_NODES),
        st.sampled_from(_HANDLERS),
        st.sets(st.sampled_from(_FEATURES)),
        st.sets(st.sampled_from(_FEATURES)),
        st.sampled_from(["", "shared-kernel", "virtual-machine"]),
        st.sampled_from(["True", "False"]),
    ),
    st.builds(
        lambda name, handler, zone: runtime_class(
            name, handler, selector={"zone": zone} if zone else None
        ),
        st.sampled_from(["one", "two"]),
        st.sampled_from(_HANDLERS),
        st.sampled_from(["", "z"]),
    ),
    st.tuples(st.just("remove"), st.sampled_from([*_NODES, "one", "two", "n0.a", "n1.b"])),
)


def _seen(index: ClassIndex) -> dict[str, Any]:
    """What can be asked of an index, with nodes by name."""
    nodes = {name: index.nodes.named(name) for name in _NODES}
    return {
        name: (
            offer.isolation,
            [one for one, bit in nodes.items() if bit & offer.nodes],
            [offer.support(feature) for feature in _FEATURES],
            [one for one, bit in nodes.items() if bit & index.nodes.with_room("cpu", 2 * 10**9)],
        )
        for name, offer in index.offers().items()
    }


@given(st.lists(_EVENTS, max_size=30))
def test_changes_one_by_one_give_the_index_of_what_is_left(events: list[Any]) -> None:
    """A node that flaps between features leaves no trace of what it was."""
    index = ClassIndex()
    present: dict[str, Any] = {}
    for event in events:
        if isinstance(event, tuple):
            name = event[1]
            present.pop(name, None)
            index.remove_node(name)
            index.remove_class(name)
            index.remove_profile(name)
        else:
            present[event.metadata.name] = event
            for obj in index_of_one(event):
                obj(index)
        index.offers()
    assert _seen(index) == _seen(index_of(*present.values()))
    for name in list(present):
        index.remove_node(name)
        index.remove_class(name)
        index.remove_profile(name)
    assert not index.nodes._bits
    assert not index._handlers


def index_of_one(obj: Any) -> list[Any]:
    """The step that records an object."""
    put: dict[str, Callable[[ClassIndex, Any], None]] = {
        "NodeFacts": ClassIndex.put_node,
        "RuntimeProfile": ClassIndex.put_profile,
    }
    step = put.get(type(obj).__name__, ClassIndex.put_class)
    return [lambda index: step(index, obj)]


def test_a_node_that_says_the_same_again_changes_nothing() -> None:
    index = index_of(node("n1", "a"), profile("n1", "a", has=["gpu"]))
    version = index.version
    index.put_node(node("n1", "a"))
    index.put_profile(profile("n1", "a", has=["gpu"]))
    assert index.version == version

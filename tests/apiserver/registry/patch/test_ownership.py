"""Who owns which field: creates, updates, applies and their conflicts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import ConflictError
from moorage.apiserver.registry.patch import (
    Change,
    CreatedFields,
    ManagedFields,
    Manager,
    TypedPatchError,
    Version,
    apply,
    is_same_but_for_times,
    track_update,
)
from tests.apiserver.registry.patch.schemas import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    RUNTIME_CLASS,
    TOPOLOGY,
    Map,
)

NOW = "2026-01-01T00:00:00Z"
CREATED = CreatedFields()
LATER = "2026-01-01T00:00:09Z"
VERSIONS = {CONFIG_MAP: "v1", POD: "v1", DEPLOYMENT: "apps/v1", RUNTIME_CLASS: "node.k8s.io/v1"}


def change(type_name: str, manager: str, operation: str = "Update", now: str = NOW,
           subresource: str = "") -> Change:  # fmt: skip
    api_version = VERSIONS[type_name]
    return Change(
        merge_schema=TOPOLOGY,
        type_name=type_name,
        manager=Manager(manager, operation, api_version, subresource),
        now=now,
        ignored={} if subresource else {"f:status": {}},
        versions=lambda version: Version(type_name) if version == api_version else None,
    )


class Live:
    """An object under several managers."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.obj: Map | None = None
        self.entries: ManagedFields = []

    def create(self, manager: str, obj: Map) -> None:
        self.obj = obj
        self.entries = CREATED.entries(change(self.type_name, manager), obj)

    def update(self, manager: str, new: Map, now: str = LATER) -> None:
        assert self.obj is not None
        self.entries = track_update(
            change(self.type_name, manager, now=now), self.obj, new, self.entries
        )
        self.obj = new

    def apply(self, manager: str, config: Map, *, force: bool = False, now: str = NOW) -> None:
        self.obj, self.entries = apply(
            change(self.type_name, manager, "Apply", now),
            self.obj,
            self.entries,
            config,
            force=force,
        )

    def owned(self, manager: str) -> Map:
        owned = [entry["fieldsV1"] for entry in self.entries if entry["manager"] == manager]
        assert len(owned) <= 1
        return owned[0] if owned else {}


@pytest.fixture
def config_map() -> Live:
    return Live(CONFIG_MAP)


def data(**values: str) -> Map:
    return {"metadata": {"name": "c"}, "data": values}


def test_a_creator_owns_what_it_set_and_the_maps_it_made(config_map: Live) -> None:
    obj = data(k="v") | {"metadata": {"name": "c", "namespace": "n", "uid": "u",
                                      "labels": {"a": "b"}}}  # fmt: skip
    config_map.create("m", obj)
    assert config_map.entries == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:k": {}},
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            },
        }
    ]


def test_an_updater_takes_what_it_changes(config_map: Live) -> None:
    config_map.create("m1", data(a="1", b="1"))
    config_map.update("m2", data(a="2", b="1", c="3"))
    assert config_map.owned("m1") == {"f:data": {".": {}, "f:b": {}}}
    assert config_map.owned("m2") == {"f:data": {"f:a": {}, "f:c": {}}}


def test_what_is_removed_is_nobodys(config_map: Live) -> None:
    config_map.create("m1", data(a="1", b="1"))
    config_map.update("m2", data(b="1"))
    assert config_map.owned("m1") == {"f:data": {".": {}, "f:b": {}}}
    assert config_map.owned("m2") == {}


def test_a_change_of_nothing_changes_no_entry(config_map: Live) -> None:
    config_map.create("m1", data(a="1"))
    before = config_map.entries
    config_map.update("m2", data(a="1"))
    assert config_map.entries is before


def test_the_status_is_not_the_main_endpoints() -> None:
    pod = Live(POD)
    obj = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}
    pod.create("m", obj | {"status": {"phase": "Pending"}})
    assert "f:status" not in pod.owned("m")


def test_the_oldest_of_many_updaters_are_put_together(config_map: Live) -> None:
    config_map.create("m0", data(k0="v"))
    for number in range(1, 15):
        assert config_map.obj is not None
        values = {**config_map.obj["data"], f"k{number}": "v"}
        config_map.update(f"m{number:02}", data(**values), now=f"2026-01-01T00:01:{number:02}Z")
    names = [entry["manager"] for entry in config_map.entries]
    assert len(names) == 10
    assert names.count("ancient-changes") == 1
    ancient = config_map.owned("ancient-changes")["f:data"]
    assert {"f:k0", "f:k1"} <= ancient.keys()


def test_an_apply_creates_and_owns_without_marks(config_map: Live) -> None:
    config_map.apply("kubectl", data(a="1"))
    assert config_map.obj == data(a="1")
    assert config_map.owned("kubectl") == {"f:data": {"f:a": {}}}
    assert config_map.entries[0]["operation"] == "Apply"


def test_field_left_out_of_an_apply_is_removed_unless_another_manager_owns_it(
    config_map: Live,
) -> None:
    config_map.apply("m1", data(a="1", b="1", c="1"))
    config_map.apply("m2", data(b="1"))
    config_map.apply("m1", data(c="1"))
    assert config_map.obj is not None
    assert config_map.obj["data"] == {"b": "1", "c": "1"}
    assert config_map.owned("m1") == {"f:data": {"f:c": {}}}


def test_another_value_for_anothers_field_is_a_conflict(config_map: Live) -> None:
    config_map.apply("m1", data(a="1"))
    with pytest.raises(ConflictError) as refusal:
        config_map.apply("m2", data(a="2"))
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "m1": .data.a'
    assert refusal.value.details == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "m1"',
                "field": ".data.a",
            }
        ]
    }


def test_an_updaters_conflict_names_its_version(config_map: Live) -> None:
    config_map.create("editor", data(a="1", b="1"))
    with pytest.raises(ConflictError) as refusal:
        config_map.apply("m2", data(a="2", b="2"))
    assert refusal.value.message == (
        'Apply failed with 2 conflicts: conflicts with "editor" using v1:\n- .data.a\n- .data.b'
    )


def test_force_takes_the_field(config_map: Live) -> None:
    config_map.apply("m1", data(a="1", b="1"))
    config_map.apply("m2", data(a="2"), force=True)
    assert config_map.obj is not None
    assert config_map.obj["data"] == {"a": "2", "b": "1"}
    assert config_map.owned("m1") == {"f:data": {"f:b": {}}}
    assert config_map.owned("m2") == {"f:data": {"f:a": {}}}


def test_the_same_value_is_shared(config_map: Live) -> None:
    config_map.apply("m1", data(a="1"))
    config_map.apply("m2", data(a="1"))
    assert config_map.owned("m1") == config_map.owned("m2") == {"f:data": {"f:a": {}}}


def test_what_was_there_before_the_first_apply_has_an_owner(config_map: Live) -> None:
    config_map.obj = data(a="1", b="1")
    config_map.apply("m", data(a="1"))
    assert config_map.owned("before-first-apply")["f:data"].keys() == {".", "f:a", "f:b"}
    with pytest.raises(ConflictError, match='conflict with "before-first-apply" using v1'):
        config_map.apply("m", data(b="2"))


def test_a_class_selector_is_owned_whole() -> None:
    live = Live(RUNTIME_CLASS)
    live.apply("m1", {"metadata": {"name": "r"}, "handler": "h",
                      "scheduling": {"nodeSelector": {"a": "1"}}})  # fmt: skip
    with pytest.raises(ConflictError) as refusal:
        live.apply("m2", {"metadata": {"name": "r"}, "scheduling": {"nodeSelector": {"b": "2"}}})
    assert refusal.value.message == (
        'Apply failed with 1 conflict: conflict with "m1": .scheduling.nodeSelector'
    )


def containers(*items: Map) -> Map:
    return {"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": list(items)}}}}


def container_names(live: Live) -> list[str]:
    assert live.obj is not None
    return [container["name"] for container in live.obj["spec"]["template"]["spec"]["containers"]]


def test_items_of_keyed_lists_have_their_own_owners() -> None:
    live = Live(DEPLOYMENT)
    live.apply("m1", containers({"name": "a", "image": "1"}))
    live.apply("m2", containers({"name": "b", "image": "1"}))
    assert container_names(live) == ["a", "b"]
    live.apply("m1", {"metadata": {"name": "d"}, "spec": {"replicas": 3}})
    assert container_names(live) == ["b"]


def test_item_with_a_field_of_another_manager_stays() -> None:
    live = Live(DEPLOYMENT)
    live.apply("m1", containers({"name": "a", "image": "1"}))
    live.apply("m2", containers({"name": "a", "stdin": True}))
    live.apply("m1", {"metadata": {"name": "d"}, "spec": {"replicas": 3}})
    assert live.obj is not None
    assert live.obj["spec"]["template"]["spec"]["containers"] == [{"name": "a", "stdin": True}]


def _with_finalizers(*names: str) -> Map:
    return {"metadata": {"name": "c", "finalizers": [f"x.io/{name}" for name in names]}}


def test_members_of_a_set_go_with_the_last_that_wants_them(config_map: Live) -> None:
    config_map.create("m0", _with_finalizers("theirs"))
    config_map.apply("m1", _with_finalizers("own", "shared", "also-own"))
    config_map.apply("m2", _with_finalizers("shared"))
    assert config_map.obj == _with_finalizers("theirs", "own", "shared", "also-own")
    config_map.apply("m1", {"metadata": {"name": "c"}})
    assert config_map.obj == _with_finalizers("theirs", "shared")
    config_map.apply("m2", {"metadata": {"name": "c"}})
    assert config_map.obj == _with_finalizers("theirs")


def test_entries_of_a_map_go_with_the_last_that_wants_them(config_map: Live) -> None:
    config_map.create("m0", data(theirs="1"))
    config_map.apply("m1", data(own="1", shared="1"))
    config_map.apply("m2", data(shared="1"))
    config_map.apply("m1", {"metadata": {"name": "c"}})
    assert config_map.obj == data(theirs="1", shared="1")


_ITEM = 'k:{"name":"a"}'
_ITEMS = ("f:spec", "f:template", "f:spec", "f:containers")


def _owned_items(live: Live, manager: str) -> Map:
    owned = live.owned(manager)
    for element in _ITEMS:
        owned = owned.get(element, {})
    return owned


@pytest.mark.parametrize(
    ("after", "first", "second"),
    [
        # A field removed from an item has no owner, and a changed one is the updater's.
        ({"name": "a", "image": "1"}, {"f:image": {}}, {}),
        ({"name": "a", "image": "2"}, {}, {"f:image": {}}),
        ({"name": "a", "image": "1", "stdin": True, "tty": True},
         {"f:image": {}, "f:stdin": {}}, {"f:tty": {}}),
        ({"name": "a", "stdin": True, "tty": True}, {"f:stdin": {}}, {"f:tty": {}}),
    ],
)  # fmt: skip
def test_an_update_of_a_keyed_item_moves_only_what_it_changes(
    after: Map, first: Map, second: Map
) -> None:
    live = Live(DEPLOYMENT)
    live.create("m1", containers({"name": "a", "image": "1", "stdin": True}, {"name": "b"}))
    live.update("m2", containers(after, {"name": "b"}))
    assert _owned_items(live, "m1")[_ITEM] == {".": {}, "f:name": {}} | first
    assert _owned_items(live, "m1")['k:{"name":"b"}'] == {".": {}, "f:name": {}}
    assert _owned_items(live, "m2") == ({_ITEM: second} if second else {})


def test_an_item_that_an_update_removes_is_nobodys() -> None:
    live = Live(DEPLOYMENT)
    live.create("m1", containers({"name": "a", "image": "1"}, {"name": "b"}))
    live.update("m2", containers({"name": "b"}))
    assert _owned_items(live, "m1").keys() == {'k:{"name":"b"}'}
    live.update("m3", containers({"name": "b"}, {"name": "a", "image": "1"}))
    assert _owned_items(live, "m3").keys() == {_ITEM}


def test_an_item_named_twice_is_refused() -> None:
    live = Live(DEPLOYMENT)
    with pytest.raises(TypedPatchError) as refusal:
        live.apply("m", containers({"name": "a"}, {"name": "a"}))
    assert str(refusal.value) == (
        '.spec.template.spec.containers: duplicate entries for key [name="a"]'
    )


def test_a_second_apply_of_the_same_changes_nothing_not_even_the_time(config_map: Live) -> None:
    config_map.apply("m", data(a="1"))
    before = (copy.deepcopy(config_map.obj), copy.deepcopy(config_map.entries))
    config_map.apply("m", data(a="1"), now=LATER)
    assert (config_map.obj, config_map.entries) == before


def test_times_alone_make_no_difference() -> None:
    manager = Manager("m", "Apply", "v1")
    assert is_same_but_for_times([manager.entry({}, NOW)], [manager.entry({}, LATER)])
    assert not is_same_but_for_times([manager.entry({}, NOW)], [])


DATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["m1", "m2", "m3"]), st.sampled_from(["apply", "update"]), DATA),
    max_size=6,
)


def replay(steps: list[tuple[str, str, dict[str, str]]]) -> Live:
    live = Live(CONFIG_MAP)
    live.create("m0", data(a="0"))
    for manager, verb, values in steps:
        new = data(**values) if values else {"metadata": {"name": "c"}}
        if verb == "apply":
            live.apply(manager, new, force=True)
        else:
            live.update(manager, new)
    return live


def members(live: Live) -> set[str]:
    assert live.obj is not None
    return set(live.obj.get("data", {}))


@given(STEPS)
def test_every_field_has_an_owner_and_every_owned_field_is_there(steps: Any) -> None:
    live = replay(steps)
    owned: set[str] = set()
    for entry in live.entries:
        fields = entry["fieldsV1"].get("f:data", {})
        owned |= {element.removeprefix("f:") for element in fields if element != "."}
    assert owned == members(live)


@given(STEPS, DATA.filter(bool))
def test_a_forced_apply_makes_what_it_states_true_and_is_idempotent(
    steps: Any, values: dict[str, str]
) -> None:
    live = replay(steps)
    live.apply("last", data(**values), force=True)
    assert live.obj is not None
    assert live.obj["data"].items() >= values.items()
    before = (copy.deepcopy(live.obj), copy.deepcopy(live.entries))
    live.apply("last", data(**values), force=False)
    assert (live.obj, live.entries) == before


@given(STEPS)
def test_inputs_are_left_alone(steps: Any) -> None:
    live = replay(steps)
    before = copy.deepcopy((live.obj, live.entries))
    other = Live(CONFIG_MAP)
    other.obj, other.entries = live.obj, live.entries
    other.apply("x", data(a="9"), force=True)
    assert (live.obj, live.entries) == before

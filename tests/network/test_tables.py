"""Tables: scripts of a change, which give what a script of the whole table gives."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.network.tables import EMPTY, Collection, Fragment, Table

FRAME = "map m { type ipv4_addr : verdict; }\nset s { type ipv4_addr; }"
SET = Collection("set", "ipv4_addr")


def table() -> Table:
    return Table("ip", "t", FRAME)


def test_a_fragment_is_added_changed_and_removed() -> None:
    one = table()
    first = Fragment(
        {"c": ("accept",)}, {"x": SET}, {"m": {"1.1.1.1": "goto c"}, "x": {"2.2.2.2": ""}}
    )
    assert one.replace("k", first).splitlines() == [
        "add set ip t x { type ipv4_addr; }",
        "add chain ip t c",
        "add rule ip t c accept",
        "add element ip t m { 1.1.1.1 : goto c }",
        "add element ip t x { 2.2.2.2 }",
    ]
    assert one.replace("k", first) == ""
    changed = Fragment({"c": ("drop",)}, {"x": SET}, {"m": {"1.1.1.1": "goto c"}})
    assert one.replace("k", changed).splitlines() == [
        "flush chain ip t c",
        "delete element ip t x { 2.2.2.2 }",
        "add rule ip t c drop",
    ]
    assert one.replace("k", EMPTY).splitlines() == [
        "flush chain ip t c",
        "delete element ip t m { 1.1.1.1 }",
        "delete chain ip t c",
        "delete set ip t x",
    ]
    assert one.owners == frozenset()


def test_what_fragments_share_is_there_until_the_last_of_them_goes() -> None:
    one, shared = table(), Fragment({"c": ("accept",)}, {"x": SET})
    assert "add chain ip t c" in one.replace("a", shared)
    assert one.replace("b", shared) == ""
    assert one.replace("a", EMPTY) == ""
    assert one.replace("b", EMPTY).splitlines() == [
        "flush chain ip t c", "delete chain ip t c", "delete set ip t x",
    ]  # fmt: skip


def test_an_element_is_that_of_the_first_who_claims_it() -> None:
    one = table()
    one.replace("a", Fragment(elements={"m": {"1.1.1.1": "accept"}}))
    assert one.replace("b", Fragment(elements={"m": {"1.1.1.1": "drop"}})) == ""
    assert one.replace("a", EMPTY).splitlines() == [
        "delete element ip t m { 1.1.1.1 }",
        "add element ip t m { 1.1.1.1 : drop }",
    ]
    assert "1.1.1.1 : drop" in one.script()


def test_long_lists_of_elements_are_many_commands() -> None:
    elements = {f"10.0.{number // 250}.{number % 250}": "" for number in range(1001)}
    script = table().replace("a", Fragment(elements={"s": elements}))
    assert [line.count(",") + 1 for line in script.splitlines()] == [500, 500, 1]


def test_the_whole_table_replaces_what_is_there() -> None:
    one = table()
    one.replace("a", Fragment({"c": ("accept",)}, {"x": SET}, {"m": {"1.1.1.1": "goto c"}}))
    assert one.script() == (
        "add table ip t\ndelete table ip t\n"
        f"table ip t {{\n{FRAME}\n}}\n"
        "add set ip t x { type ipv4_addr; }\n"
        "add chain ip t c\nadd rule ip t c accept\nadd element ip t m { 1.1.1.1 : goto c }\n"
    )


class Model:
    """What a kernel would have after scripts; fails as it does where something is in the way."""

    def __init__(self) -> None:
        self.chains: dict[str, list[str]] = {}
        self.sets: set[str] = {"m", "s"}
        self.elements: dict[tuple[str, str], str] = {}

    def run(self, script: str) -> None:
        for line in script.splitlines():
            verb, what, _, _, name, *rest = line.split(" ", 5)
            text = rest[0] if rest else ""
            match verb, what:
                case "flush", "chain":
                    self.chains[name] = []
                case "add", "chain":
                    assert name not in self.chains
                    self.chains[name] = []
                case "add", "rule":
                    self.chains[name].append(text)
                case "delete", "chain":
                    assert not self.chains.pop(name)
                    assert f"goto {name}" not in self.elements.values()
                case ("add", "set") | ("add", "map"):
                    self.sets.add(name)
                case ("delete", "set") | ("delete", "map"):
                    self.sets.remove(name)
                    for place in [place for place in self.elements if place[0] == name]:
                        del self.elements[place]
                case "delete", "element":
                    for key in text.strip("{ }").split(", "):
                        del self.elements[name, key]
                case "add", "element":
                    assert name in self.sets
                    for entry in text.strip("{ }").split(", "):
                        key, _, value = entry.partition(" : ")
                        assert (name, key) not in self.elements
                        target = re.match("goto (.*)", value)
                        assert target is None or target[1] in self.chains
                        self.elements[name, key] = value
                case _:
                    pytest.fail(line)


fragments = st.builds(
    lambda chains, keys: Fragment(
        {name: (f"counter {name}",) for name in chains},
        {},
        {
            "m": {
                f"10.0.0.{key}": f"goto {name}"
                for name, key in zip(sorted(chains), keys, strict=False)
            },
            "s": {f"10.0.0.{key}": "" for key in keys},
        },
    ),
    st.sets(st.sampled_from("abc")),
    st.lists(st.integers(1, 4), unique=True),
)


@given(st.lists(st.tuples(st.sampled_from("xyz"), fragments), max_size=12))
def test_changes_lead_to_what_the_whole_table_says(steps: list[tuple[str, Fragment]]) -> None:
    one, model = table(), Model()
    for key, fragment in steps:
        model.run(one.replace(key, fragment))
        whole = Model()
        whole.run(one.script().partition("\n}\n")[2])
        assert (whole.chains, whole.elements) == (model.chains, model.elements)

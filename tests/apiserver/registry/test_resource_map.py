"""Resource map: the API's own kinds and those of definitions."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.resource_map import ResourceMap


def _kind(name: str, group: str = "a.io", *, is_served: bool = True) -> Kind:
    served = (Served(group=group, version="v1", type="T", is_served=is_served),)
    return Kind(name=name, plural=f"{name.lower()}s", served=served)


OWN = _kind("Own")


def test_custom_kinds_come_and_go() -> None:
    resources, custom = ResourceMap((OWN,)), _kind("Custom", "c.io")
    assert not resources.has_group("c.io")
    resources.put_custom("customs.c.io", (custom,))
    assert resources.find("c.io", "v1", "customs") == (custom, custom.served[0])
    assert ([kind for kind, _ in resources.resources()], resources.changes) == ([OWN, custom], 1)
    resources.remove_custom("customs.c.io")
    assert resources.find("c.io", "v1", "customs") is None
    assert ([kind for kind, _ in resources.resources()], resources.changes) == ([OWN], 2)
    resources.remove_custom("customs.c.io")
    assert resources.changes == 2


def test_custom_kind_never_replaces_one_of_the_api() -> None:
    resources = ResourceMap((OWN,))
    resources.put_custom("owns.a.io", (_kind("Own"),))
    assert resources.find("a.io", "v1", "owns") == (OWN, OWN.served[0])
    assert resources.is_own("a.io", "owns")
    assert not resources.is_own("a.io", "others")


def test_version_that_is_not_served_is_not_found() -> None:
    resources = ResourceMap((OWN,))
    resources.put_custom("hiddens.c.io", (_kind("Hidden", "c.io", is_served=False),))
    assert resources.find("c.io", "v1", "hiddens") is None
    assert not resources.has_group("c.io")

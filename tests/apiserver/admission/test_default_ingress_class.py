"""The default class of ingresses."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.ingress_classes import IngressClass
from moorage.apiserver.admission.default_classes import DefaultIngressClass
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.ingress import INGRESS
from tests.apiserver.admission.writes import admit, write

DAY = "2026-01-0{}T00:00:00Z"


def ingress_class(name: str, day: int, default: str = "true") -> IngressClass:
    annotations = {"ingressclass.kubernetes.io/is-default-class": default}
    meta = {"name": name, "creationTimestamp": DAY.format(day), "annotations": annotations}
    return msgspec.convert({"metadata": meta}, IngressClass)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], None),
        ([ingress_class("a", 1, "false")], None),
        ([ingress_class("a", 1), ingress_class("b", 2, "false")], "a"),
        ([ingress_class("a", 1), ingress_class("b", 2)], "b"),
        ([ingress_class("b", 1), ingress_class("a", 1)], "a"),
    ],
)
def test_the_newest_default_class_is_set(classes: list[IngressClass], expected: str | None) -> None:
    ingress: Obj = {"metadata": {"name": "i"}, "spec": {}}
    after = admit(DefaultIngressClass(lambda: classes), write(INGRESS, ingress))
    assert after["spec"].get("ingressClassName") == expected


@pytest.mark.parametrize(
    "ingress",
    [
        {"metadata": {"name": "i"}, "spec": {"ingressClassName": "own"}},
        {"metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": ""}}, "spec": {}},
    ],
)
def test_a_class_that_is_named_stays(ingress: Obj) -> None:
    before = msgspec.json.encode(ingress)
    plugin = DefaultIngressClass(lambda: [ingress_class("a", 1)])
    assert msgspec.json.encode(admit(plugin, write(INGRESS, ingress))) == before

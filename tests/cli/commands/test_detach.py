"""Plans of `moor detach`: what goes, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.attach.class_uses import ClassUses
from moorage.attach.detach_options import DetachOptions
from moorage.attach.detachment import DetachPlan
from moorage.cli.commands.detach import show_plan


def _object(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}}


_PLAN = DetachPlan(
    (
        _object("Namespace", "moorage-system"),
        _object("Namespace", "moorage-probes"),
        _object("CustomResourceDefinition", "d"),
    ),
    (),
    (),
    foreign={"moorage-system": ["ConfigMap mine"]},
    classes={
        "crun": ClassUses(),
        "gvisor": ClassUses(1),
        "runc": ClassUses(1, ("CronJob shop/nightly",)),
    },
)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            {},
            [
                "to remove: 1 Namespace, 1 CustomResourceDefinition, 1 RuntimeClass",
                "RuntimeClass gvisor stays, and is yours then: 1 pod uses it",
                "RuntimeClass runc stays, and is yours then: 1 pod and the template of CronJob "
                "shop/nightly use it",
                "namespace moorage-system stays, for others' objects are in it: ConfigMap mine",
            ],
        ),
        (
            {"removes_classes": True, "removes_namespaces": True, "keeps_definitions": True},
            ["to remove: 2 Namespace, 3 RuntimeClass"],
        ),
    ],
)
def test_what_stays_is_not_counted_as_removed(
    options: dict[str, bool], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(_PLAN, DetachOptions(said=print, **options))
    assert capsys.readouterr().out.splitlines() == lines


def test_a_plan_of_which_all_stays_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    spaces = (_object("Namespace", "moorage-system"),)
    plan = DetachPlan(spaces, (), (), foreign={"moorage-system": ["ConfigMap mine"]})
    show_plan(plan, DetachOptions(said=print))
    assert capsys.readouterr().out.splitlines()[0] == "to remove: nothing"

from __future__ import annotations

import pytest

from moorage.api.runtime_group import RuntimeClass
from moorage.runtimeclass import ClassMissing, resolve_handler

CLASSES = {"gvisor": RuntimeClass(handler="runsc")}


@pytest.mark.parametrize(
    ("class_name", "handler"), [(None, ""), ("", ""), ("legacy", ""), ("gvisor", "runsc")]
)
def test_class_name_resolves_to_its_handler(class_name: str | None, handler: str) -> None:
    assert resolve_handler(class_name, CLASSES.get) == handler


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(ClassMissing, match=r'runtimeclass\.node\.k8s\.io "kata" not found'):
        resolve_handler("kata", CLASSES.get)

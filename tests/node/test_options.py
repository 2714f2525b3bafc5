from __future__ import annotations

from typing import Any

import pytest

from moorage.node.options import ImageGarbageOptions, LogRotationOptions, NodeOptions, OptionsError


def test_the_usual_options_are_sound() -> None:
    NodeOptions(name="n1").check()
    assert NodeOptions(name="n1").is_enabled("RuntimeClass")
    assert not NodeOptions(name="n1", gates={"RuntimeClass": False}).is_enabled("RuntimeClass")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"gates": {"Odd": True}}, "unknown feature gate 'Odd'"),
        ({"cgroup_driver": "systemd"}, "cgroup driver 'systemd' is not supported: set the engine"),
        ({"cgroup_root": "moorage"}, "must be an absolute path"),
        ({"log_rotation": LogRotationOptions(max_files=1)}, "needs at least 2 files"),
        (
            {"image_garbage": ImageGarbageOptions(high_percent=80, low_percent=80)},
            "the low threshold must be below the high one",
        ),
    ],
)
def test_invalid_options_are_rejected_before_anything_starts(options: Any, complaint: str) -> None:
    with pytest.raises(OptionsError, match=complaint):
        NodeOptions(name="n1", **options).check()

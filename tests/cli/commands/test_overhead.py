"""`moor overhead measure` and `moor conformance`: what is refused before any pod is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.runtimes.overhead import MeasurementError, MeasureOptions
from tests.cli.moor import cluster, moor


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("overhead", "measure", "crun", "--in-place"), "--in-place needs --apply"),
        (("overhead", "measure", "crun", "--payload", "many"), "is not a quantity"),
        (("overhead", "measure"), "Missing argument 'HANDLER'"),
        (("conformance", "crun", "--as", "strong"), "'strong' is not one of 'native'"),
        (("conformance", "crun", "--format", "pdf"), "'pdf' is not one of"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    answer = moor(*arguments, "--data-dir", tmp_path)
    assert answer.status == 2
    assert message in answer.err


@pytest.mark.parametrize("command", [("overhead", "measure", "crun"), ("conformance", "crun")])
def test_a_cluster_that_does_not_run_is_no_place_to_measure(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    layout = cluster(tmp_path)
    answer = moor(*command, "--data-dir", layout.root)
    assert answer.status == 3
    assert "is not running" in answer.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"parallel": 0}, "parallel must be at least 1"),
        ({"containers": 17}, "containers must be between 1 and 16"),
        ({"payload_bytes": -1}, "payload must be between 0 and 16Gi"),
        ({"percentile": 100.5}, "percentile must be between 0 and 100"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1"),
        ({"window_s": 0.0}, "window must be between"),
        ({"readings": 1}, "readings must be between 2 and 1000"),
        ({"samples": 1000}, "6000 probe pods are more than 1000"),
    ],
)
def test_options_that_make_no_measurement_are_refused(
    options: dict[str, float], message: str
) -> None:
    with pytest.raises(MeasurementError, match=message):
        MeasureOptions(handler="h", **options).check()  # type: ignore[arg-type]


def test_shapes_differ_in_what_growth_is_fitted_to() -> None:
    options = MeasureOptions(handler="h", samples=2)
    assert [(one.containers, bool(one.payload_bytes)) for one in options.shapes] == [
        (1, False), (2, False), (1, True),
    ]  # fmt: skip
    assert len(list(options.rounds())) == options.pods == 12
    assert MeasureOptions(handler="h", payload_bytes=0, further_containers=0).pods == 10

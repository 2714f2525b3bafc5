"""Names that do not exist: refused at once, with those that do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, runtime_class


@pytest.fixture
def known(control_plane: RunningCluster) -> Iterator[str]:
    """A class whose handler is on no node."""
    name = "refusals-known"
    control_plane.apply(runtime_class(name, name))
    yield name
    control_plane.kubectl("delete", "runtimeclass", name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "classes", "--class", "nix"),
        ("rollout", "start", "--from", "nix", "--to", "refusals-known"),
        ("rollout", "start", "--from", "refusals-known", "--to", "nix"),
    ],
)
def test_a_class_that_does_not_exist_is_refused(
    control_plane: RunningCluster, known: str, arguments: tuple[str, ...]
) -> None:
    refused = control_plane.moor(*arguments, status=1)
    assert "RuntimeClass nix does not exist; those that do: " in refused.stderr
    assert known in refused.stderr
    rollouts = control_plane.moor("rollout", "list", "-o", "json")
    assert "nix" not in rollouts.stdout


def test_a_handler_that_no_node_has_is_not_measured(control_plane: RunningCluster) -> None:
    refused = control_plane.moor("overhead", "measure", "nix", status=1)
    assert "there is no handler nix on any node; handlers that nodes report" in refused.stderr
    label = "runtime.moorage.dev/overhead-measurement"
    assert control_plane.get("runtimeclasses", "-l", label)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "junit"), "--format junit needs a CLASS"),
        (("--as", "native"), "--as needs a CLASS"),
        (("--dry-run",), "--dry-run needs a CLASS"),
    ],
)
def test_options_of_a_test_need_a_class_to_test(
    control_plane: RunningCluster, arguments: tuple[str, ...], message: str
) -> None:
    assert message in control_plane.moor("conformance", *arguments, status=2).stderr


def test_what_classes_have_proved_is_there_for_programs(
    control_plane: RunningCluster, known: str
) -> None:
    listed = control_plane.moor("conformance", "--format", "json").stdout
    assert f'"runtime_class": "{known}"' in listed


@pytest.mark.parametrize(
    "arguments",
    [
        ("conformance", "crun", "--report", "/no/such/place/report.xml"),
        ("overhead", "measure", "crun", "--png", "/no/such/place/plot.png"),
        ("bench", "classes", "--samples", "/no/such/place/samples.json"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    control_plane: RunningCluster, arguments: tuple[str, ...]
) -> None:
    refused = control_plane.moor(*arguments, status=2)
    assert "directory /no/such/place does not exist" in refused.stderr


@pytest.mark.parametrize(("namespaces", "suffix"), [(("a",), "-in-a"), (("a", "b"), "")])
def test_a_rollout_is_for_the_namespaces_that_are_named(
    control_plane: RunningCluster, known: str, namespaces: tuple[str, ...], suffix: str
) -> None:
    control_plane.apply(runtime_class("refusals-next", "refusals-next"))
    options = [part for namespace in namespaces for part in ("-n", namespace)]
    change = ("rollout", "start", "--from", known, "--to", "refusals-next", "--paused")
    both = control_plane.moor(*change, *options, "--namespace-selector", "x=y", status=2)
    assert "not both" in both.stderr
    name = f"{known}-to-refusals-next{suffix}"
    assert f"rollout {name} started" in control_plane.moor(*change, *options).stdout
    try:
        spec = control_plane.get("runtimerollouts", name)["spec"]
        assert spec["namespaceSelector"] == {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "In",
                    "values": list(namespaces),
                }
            ]
        }
    finally:
        control_plane.moor("rollout", "delete", name)
        control_plane.kubectl("delete", "runtimeclass", "refusals-next")

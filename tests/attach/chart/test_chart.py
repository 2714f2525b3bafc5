"""The chart: Helm renders the objects that `moor attach --print` prints, whatever the values."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moorage.api.runtime_group import HANDLER_GATE, MANAGED_LABEL, PROBE_CLASS_PREFIX
from moorage.attach.chart import chart_files, write_chart
from moorage.attach.chart.templates import TemplateError, templates
from moorage.attach.chart.values import NOTES, defaults
from moorage.attach.chart.values import test_objects as hook_objects
from moorage.attach.host_paths import path_problems
from moorage.attach.manifests import objects
from moorage.attach.manifests.controllers import LEASE
from moorage.attach.manifests.identity import Obj
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.served_objects import key_of
from moorage.attach.values import Values
from moorage.attach.values_input import merged
from moorage.runtimes.probing.default_classes import RECORD
from tests.documents import REPOSITORY

helm = pytest.importorskip("helm_python")

_COMMITTED = Path(__file__).parents[3] / "chart" / "moorage"
_RELEASE_NAMESPACE = "moorage-system"
_CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "everything off": {
        "controllers": {"createClasses": False},
        "ui": {"enabled": False},
        "agent": {
            "installsRuntimes": False, "tolerations": [], "nodeSelector": {},
            "resources": {"requests": {}, "limits": {}},
        },
        "certificates": "cert-manager",
    },
    "a host path that is the default socket's directory": {"agent": {"hostPaths": ["/run/", "/x"]}},
    "a host path that is the socket's directory": {
        "agent": {"cri": "unix:///run/k3s/x.sock", "hostPaths": ["/x", "/run/k3s", "/run"]}
    },
    "everything on": {
        "scheduler": {"enabled": True},
        "excludedNamespaces": ["a", "b", "c"],
        "agent": {
            "cri": "unix:///run/k3s/containerd/containerd.sock",
            "hostPaths": ["/opt/kata", "/usr/local/lib/runtimes", "/data/00"],
            "tolerations": [{"key": "x", "operator": "Equal", "value": "a: {{b}}"}],
            "nodeSelector": {"pool": "true", "with.dots/and-slash": "1"},
        },
    },
    "texts that templates could take for their own": {
        "image": 'host:5000/a"b%s%d`{{.Values}}`:1@sha256:00',
        "logLevel": "debug",
        "imagePullPolicy": "Never",
    },
    "commands and sockets with marks of YAML, of templates and of shells": {
        "image": "x:1'\"{{.Release.Name}}",
        "agent": {
            "cri": "unix:///run/a\"b'{{fail}}/-#:&*!|>%@`.sock",
            "restartCommand": "sh -c '{{ fail \"x\" }}' \\n # : - \"--x\" `id` %s%v [a] {b: c} |",
            "hostPaths": ["/opt/\"'{{x}}-#"],
            "nodeSelector": {"a": "{{ fail }}", "b": "- x: y #"},
            "resources": {"requests": {"cpu": "{{1}}\"'\n- x"}, "limits": {}},
        },
    },
    "one replica": {"webhook": {"replicas": 1}, "controllers": {"replicas": 1}},
    "many replicas": {"webhook": {"replicas": 9, "failurePolicy": "Ignore"}},
    "a namespace of its own": {"namespace": "elsewhere", "createNamespace": True},
    "resources": {
        "webhook": {"resources": {"requests": {"cpu": "1"}, "limits": {}}},
        "controllers": {"resources": {"requests": {}, "limits": {"memory": "1Gi"}}},
        "agent": {"hostPaths": ["/opt/kata"], "installsRuntimes": False},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("chart") / "moorage"
    write_chart(directory)
    return helm.Chart.load(str(directory))


def rendered(chart: Any, values: dict[str, Any]) -> dict[str, list[Obj]]:
    """Return Helm's objects, and those of its hooks."""
    found: dict[str, list[Obj]] = {"objects": [], "hooks": []}
    for path, text in chart.render(values, name="m", namespace=_RELEASE_NAMESPACE).items():
        if path.endswith(".yaml"):
            documents = [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]
            found["hooks" if "/tests/" in path else "objects"] += documents
    return found


def same_values(values: dict[str, Any]) -> Values:
    """Return the values that `moor attach` would have been given."""
    given = merged(defaults(), values)
    given["namespace"] = given["namespace"] or _RELEASE_NAMESPACE
    return msgspec.convert(given, Values)


def plain(made: list[Obj]) -> dict[tuple[str, str, str], Obj]:
    by_key = {key_of(obj): obj for obj in made}
    assert len(by_key) == len(made)
    return by_key


@pytest.mark.parametrize("case", _CASES)
def test_helm_renders_what_attach_prints(chart: Any, case: str) -> None:
    values = _CASES[case]
    helms = plain(rendered(chart, values)["objects"])
    ours = plain(msgspec.to_builtins(objects(same_values(values))))
    for obj in ours.values():
        if obj["kind"] == "CustomResourceDefinition":
            # The only difference: Helm shall keep them.
            obj["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    assert helms.keys() == ours.keys()
    for key, obj in ours.items():
        assert helms[key] == obj


@pytest.mark.parametrize("case", _CASES)
def test_the_test_is_a_hook(chart: Any, case: str) -> None:
    hooks = rendered(chart, _CASES[case])["hooks"]
    assert hooks == hook_objects(same_values(_CASES[case]))
    assert hooks[0]["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_the_notes_name_the_namespace(chart: Any) -> None:
    texts = chart.render({}, name="m", namespace="here")
    notes = next(text for path, text in texts.items() if path.endswith("NOTES.txt"))
    assert "namespace here." in notes


def test_the_default_values_satisfy_the_schema(chart: Any) -> None:
    chart.validate_schema({})
    assert chart.values == defaults()


@pytest.mark.parametrize(
    "values",
    [
        {"webhook": {"replicas": 0}},
        {"webhook": {"failurePolicy": "Sometimes"}},
        {"agent": {"hostPaths": ["relative"]}},
        {"agent": {"cri": "/run/containerd.sock"}},
        {"replicas": 2},
        {"namespace": "Not_A_Name"},
        {"namespace": "a' || true || '"},
        {"excludedNamespaces": ["a\n- b"]},
        {"image": "x:$(NODE_NAME)"},
        {"agent": {"restartCommand": "restart $(NODE_NAME)"}},
        {"agent": {"restartCommand": " restart"}},
        {"agent": {"cri": "unix:///$(NODE_NAME)/x.sock"}},
        {"logLevel": "debug\n- x"},
    ],
)
def test_values_that_attach_refuses_are_refused_by_helm(chart: Any, values: Any) -> None:
    with pytest.raises(helm.HelmError):
        chart.validate_schema(values)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(merged(msgspec.to_builtins(Values()), values), Values)


@pytest.mark.parametrize(
    ("agent", "is_valid"),
    [
        *(({"hostPaths": [path]}, False)
          for path in (
              "/", "//", "/.", "/./", "/tmp", "/tmp/", "/.//tmp/.", "/..", "/tmp/..", "/opt/../usr",
              "/usr", "/lib64/", "/dev", "//var/./lib//moorage-agent/", "/a:b", "/etc/crio",
          )),
        *(({"hostPaths": [path]}, True)
          for path in (
              "/opt", "/usr/local", "/tmpfs", "/tmp/x", "/var/lib", "/opt/..data", "/opt/a..",
              "/opt/...", "/.hidden", "/etc/crio.d", "/libs", "/opt/usr", "/run/",
          )),
        ({"hostPaths": ["/opt", "/tmp/"]}, False),
        ({"hostPaths": ["/etc/crio", "/etc/containerd"], "installsRuntimes": False}, True),
        *(({"cri": f"unix://{path}"}, False)
          for path in (
              "/x.sock", "//./x.sock", "/tmp/x.sock", "/usr/./x.sock", "/run/../x/y.sock",
              "/a:b/x.sock", "/etc/containerd/x.sock",
          )),
        *(({"cri": f"unix://{path}"}, True)
          for path in ("/run/x.sock", "/tmp/x/y.sock", "/run/..x/y.sock", "/run/x:y.sock")),
        ({"cri": "unix:///etc/crio/x.sock", "installsRuntimes": False}, True),
    ],
)  # fmt: skip
def test_helm_and_attach_refuse_the_same_paths(chart: Any, agent: Any, *, is_valid: bool) -> None:
    with nullcontext() if is_valid else pytest.raises(helm.HelmError):
        chart.validate_schema({"agent": agent})
    values = msgspec.convert(merged(msgspec.to_builtins(Values()), {"agent": agent}), Values)
    assert (not list(path_problems(values.agent))) is is_valid


def test_helm_finds_no_fault(tmp_path: Path) -> None:
    write_chart(tmp_path / "moorage")
    result = helm.lint(str(tmp_path / "moorage"))
    assert "[ERROR]" not in str(result)


def test_the_chart_of_the_repository_is_current() -> None:
    files = {
        str(path.relative_to(_COMMITTED)): path.read_text()
        for path in _COMMITTED.rglob("*")
        if path.is_file()
    }
    assert files == chart_files(), "run `make chart`"


def test_a_value_that_is_worked_with_is_refused() -> None:
    def make(values: Values) -> list[Obj]:
        name = values.image.split("/")[0].upper()[:4]
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}]

    with pytest.raises(TemplateError):
        templates(make)


def test_notes_and_page_name_all_that_uninstalling_leaves() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "attach.md").read_text()
    for text in (NOTES, page):
        for name in (SECRET, LEASE, RECORD):
            assert name in text
    for name in (MANAGED_LABEL, HANDLER_GATE, PROBE_CLASS_PREFIX, DATA_DIRECTORY):
        assert name in page

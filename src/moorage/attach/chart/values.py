"""Values of the chart as files: values.yaml with each description, and the schema of it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from moorage import __version__
from moorage.api.meta import Raw
from moorage.api.yaml_text import dump
from moorage.attach.host_paths import path_schemas
from moorage.attach.manifests.identity import TEST_POD, Obj, labels, metadata, part_name
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.survey import LEAST_MINOR
from moorage.attach.values import Values

# Texts of the chart that are no template of an object: Chart.yaml, NOTES, the test.

CHART = f"""\
apiVersion: v2
name: moorage
description: Runtime handlers discovered, probed and used well, on any Kubernetes
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.{LEAST_MINOR}.0-0"
"""

NOTES = """\
Moorage {{ $.Chart.AppVersion }} is being installed in namespace \
{{ default $.Release.Namespace $.Values.namespace }}.

{{- if not $.Values.createNamespace }}

Where the cluster enforces pod security, the namespace needs the level that the runtime agents have:

  kubectl label --overwrite namespace {{ default $.Release.Namespace $.Values.namespace }} \
pod-security.kubernetes.io/enforce=privileged
{{- end }}

See whether it answers, which handlers work where, and their classes:

  helm test {{ $.Release.Name }} -n {{ $.Release.Namespace }}
  kubectl get runtimeprofiles
  kubectl get runtimeclasses

To remove it, first run

  moor detach

while the parts still run, and then

  helm uninstall {{ $.Release.Name }} -n {{ $.Release.Namespace }}

The latter alone keeps the definitions of runtime.moorage.dev with your policies, the \
RuntimeClasses that were made, labels of nodes, annotations, conditions and scheduling gates of \
pods, the Secret moorage-webhook-tls, the Lease moorage-controllers, the ConfigMap \
kube-system/moorage-runtime-classes, and what is installed on nodes. `moor detach` afterwards \
removes all but the last.
"""

_TEST = "answers"
_WEBHOOK = part_name("webhook")
_WAIT_SECONDS = 120
_PROGRAM = """\
import ssl, sys, time, urllib.request
trusted = ssl.create_default_context(cafile="/certificates/ca.crt")
url, end = "https://{host}/readyz", time.monotonic() + {seconds}
while True:
    try:
        with urllib.request.urlopen(url, context=trusted, timeout=10) as answer:
            print("the webhook answers:", answer.status)
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(f"the webhook does not answer at {{url}}: {{error}}")
    time.sleep(1)
"""


def test_objects(values: Values) -> list[Obj]:
    """Return the pod of `helm test`, which asks the webhook by its service whether it is ready."""
    made = metadata(TEST_POD, namespace=values.namespace)
    made["annotations"] = {
        "helm.sh/hook": "test",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    made["labels"] = labels("test")
    program = _PROGRAM.format(host=f"{_WEBHOOK}.{values.namespace}.svc", seconds=_WAIT_SECONDS)
    container = {
        "name": _TEST,
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "command": ["python3", "-c", program],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "authority", "mountPath": "/certificates", "readOnly": True},
        ],
    }
    authority = {
        "name": "authority",
        "secret": {
            "secretName": SECRET,
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        },
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": made,
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [container],
                "volumes": [authority],
            },
        }
    ]


_WIDTH = 78
_OWN_DEFAULTS: Raw = {"namespace": "", "createNamespace": False}
"""Defaults that differ from those of `moor attach`: Helm has the release's namespace."""
_OWN_DESCRIPTIONS = {
    "namespace": "Namespace of the parts; that of the release if empty.",
    "createNamespace": "Have the namespace among the objects, with its pod security labels. Only "
    "with a namespace that is not the release's, which Helm needs beforehand.",
}
_HEAD = """\
# Values of the chart moorage: the same as those of `moor attach --values`.
# Made by `make chart`; do not edit it.
"""


def values_text() -> str:
    """Return values.yaml: every value with its default and its description."""
    return _HEAD + "\n".join(_lines(schema(), defaults(), "")) + "\n"


def schema_text() -> str:
    """Return values.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def defaults() -> Raw:
    """Return the chart's default values."""
    raw: Raw = msgspec.json.decode(msgspec.json.encode(Values()))
    return raw | _OWN_DEFAULTS


def schema() -> Raw:
    """Return the JSON schema of the values, in one piece."""
    made = msgspec.json.schema(Values)
    resolved: Raw = _resolved({"$ref": made["$ref"]}, made["$defs"])
    for name, description in _OWN_DESCRIPTIONS.items():
        resolved["properties"][name]["description"] = description
        resolved["properties"][name]["default"] = _OWN_DEFAULTS[name]
    namespace = resolved["properties"]["namespace"]
    namespace["pattern"] = f"^$|{namespace['pattern']}"
    agent = resolved["properties"]["agent"]
    cri, item, whole = path_schemas()
    agent["properties"]["cri"] |= cri
    agent["properties"]["hostPaths"]["items"] |= item
    agent |= whole
    # Helm adds it to the values of every chart that is below another.
    resolved["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | resolved


def _resolved(node: Any, definitions: Raw) -> Any:
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(reference := node.get("$ref"), str):
        name = reference.rsplit("/", 1)[-1]
        above = {key: value for key, value in node.items() if key != "$ref"}
        return _resolved(definitions[name], definitions) | above
    if isinstance(parts := node.get("allOf"), list) and len(parts) == 1:
        above = {key: value for key, value in node.items() if key != "allOf"}
        return _resolved(parts[0], definitions) | above
    return {key: _resolved(value, definitions) for key, value in node.items() if key != "title"}


def _lines(node: Raw, values: Raw, indent: str) -> Iterator[str]:
    for name, value in values.items():
        described = node["properties"][name]
        yield ""
        text = described.get("description", "")
        for choice in (described.get("enum"),):
            if choice:
                text += f" One of {', '.join(choice)}."
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        is_section = "properties" in described and "requests" not in described["properties"]
        if is_section:
            yield f"{indent}{name}:"
            yield from _lines(described, value, indent + "  ")
        else:
            written = dump({name: value}).rstrip("\n").split("\n")
            yield from (f"{indent}{line}" for line in written)

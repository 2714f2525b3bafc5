"""OpenAPI operations on the paths of a kind, in a form common to both dialects.

Source: Kubernetes' published documents: operation ids, `x-kubernetes-action`, parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moorage.apiserver.registry.kind import Kind, Served, Subresource

BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_CUSTOM_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
# kubectl chooses its patch by this list: a custom resource has no strategic merge.
_PATCH_TYPES = (*_CUSTOM_PATCH_TYPES, "application/strategic-merge-patch+json")
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_ACTIONS = {
    "get": ("get", "read"),
    "list": ("get", "list"),
    "create": ("post", "create"),
    "update": ("put", "replace"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
    "deletecollection": ("delete", "deletecollection"),
}
_VERB_ACTIONS = {"create": "post", "update": "put", "deletecollection": "deletecollection"}
_ON_COLLECTION = frozenset({"list", "create", "deletecollection"})
_CONNECT = frozenset({"exec", "attach", "portforward", "proxy"})

# name → (type, description)
_PARAMETERS = {
    "dryRun": ("string", "With `All`, everything is checked and nothing is stored."),
    "fieldManager": ("string", "The name of the actor that makes the change."),
    "fieldValidation": (
        "string",
        "What to do with unknown or duplicate fields: Ignore, Warn (the default) or Strict.",
    ),
    "force": ("boolean", "Take fields over from other managers. Apply only."),
    "labelSelector": ("string", "Only objects whose labels match."),
    "fieldSelector": ("string", "Only objects whose fields match."),
    "limit": ("integer", "How many objects to answer at most."),
    "continue": ("string", "Where the list before ended."),
    "resourceVersion": ("string", "From which version on, or how fresh, the answer must be."),
    "resourceVersionMatch": ("string", "How `resourceVersion` is meant: Exact, NotOlderThan."),
    "sendInitialEvents": ("boolean", "Begin a watch with the objects there are."),
    "timeoutSeconds": ("integer", "When to end the list or watch."),
    "watch": ("boolean", "Answer with changes as they happen."),
    "allowWatchBookmarks": ("boolean", "Bookmarks may come in a watch."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end; 0 is at once."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background, Foreground."),
    "pretty": ("string", "Indent the answer."),
    "container": ("string", "The container meant."),
    "command": ("array", "The command, one parameter a word."),
    "stdin": ("boolean", "Connect standard input."),
    "stdout": ("boolean", "Connect standard output."),
    "stderr": ("boolean", "Connect standard error."),
    "tty": ("boolean", "Give the command a terminal."),
    "ports": ("array", "The ports to forward."),
    "path": ("string", "The path to ask for."),
    "follow": ("boolean", "Go on as the log grows."),
    "previous": ("boolean", "The log of the container before the last restart."),
    "sinceSeconds": ("integer", "Only what is not older than that."),
    "sinceTime": ("string", "Only what is not older than that moment."),
    "timestamps": ("boolean", "A timestamp before each line."),
    "tailLines": ("integer", "Only that many lines from the end."),
    "limitBytes": ("integer", "Only that many bytes."),
}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_SELECT = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit",
    "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_OF_VERB = {
    "get": (),
    "list": _SELECT,
    "create": _WRITE,
    "update": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
    "deletecollection": ("dryRun", "gracePeriodSeconds", "propagationPolicy", *_SELECT),
}
_OF_PART = {
    "exec": ("command", "container", "stdin", "stdout", "stderr", "tty"),
    "attach": ("container", "stdin", "stdout", "stderr", "tty"),
    "portforward": ("ports",),
    "proxy": ("path",),
    "log": (
        "container", "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines",
        "limitBytes",
    ),
}  # fmt: skip


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: str
    description: str
    place: str = "query"


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. `body` and `answer` are full type names, empty for none or text.

    `consumes` are the media types of the body.
    """

    path: str
    method: str
    action: str
    id: str
    description: str
    group: str
    version: str
    kind: str
    parameters: tuple[Parameter, ...]
    body: str
    answer: str
    consumes: tuple[str, ...]


def _consumed(kind: Kind, verb: str) -> tuple[str, ...]:
    if verb != "patch":
        return BODY_TYPES
    return _CUSTOM_PATCH_TYPES if kind.is_custom else _PATCH_TYPES


def operations(kind: Kind, served: Served) -> Iterator[Operation]:
    """Yield all operations of a kind in one version."""
    root = f"/apis/{served.group}" if served.group else "/api"
    scope = "/namespaces/{namespace}" if kind.is_namespaced else ""
    collection = f"{root}/{served.version}{scope}/{kind.plural}"
    for verb in _ACTIONS:
        if verb in kind.verbs:
            path = collection if verb in _ON_COLLECTION else f"{collection}/{{name}}"
            yield _own(kind, served, verb, path)
    if kind.is_namespaced and "list" in kind.verbs:
        everywhere = f"{root}/{served.version}/{kind.plural}"
        yield _own(kind, served, "list", everywhere, is_everywhere=True)
    for name, part in sorted(kind.subresources.items()):
        for verb in _ACTIONS:
            if verb in part.verbs:
                yield _partial(kind, served, verb, f"{collection}/{{name}}/{name}", name, part)


def _own(
    kind: Kind, served: Served, verb: str, path: str, *, is_everywhere: bool = False
) -> Operation:
    method, word = _ACTIONS[verb]
    writes = verb in ("create", "update")
    answer = f"{META}.Status" if verb in ("delete", "deletecollection") else served.type
    body = served.type if writes else f"{META}.Patch" if verb == "patch" else ""
    if verb in ("delete", "deletecollection"):
        body = f"{META}.DeleteOptions"
    return Operation(
        path=path,
        method=method,
        action=_VERB_ACTIONS.get(verb, verb),
        id=_id(kind, served, word, "", is_everywhere=is_everywhere),
        description=f"{word} {'objects' if verb == 'list' else 'a'} {kind.name}",
        group=served.group,
        version=served.version,
        kind=kind.name,
        parameters=(*_places(path), *_parameters(*_OF_VERB[verb], "pretty")),
        body=body,
        answer=f"{served.type}List" if verb == "list" else answer,
        consumes=_consumed(kind, verb),
    )


def _partial(
    kind: Kind, served: Served, verb: str, path: str, name: str, part: Subresource
) -> Operation:
    method, word = _ACTIONS[verb]
    is_connect = name in _CONNECT
    type_ = "" if is_connect or name == "log" else part.type or served.type
    body = type_ if verb in ("create", "update") else f"{META}.Patch" if verb == "patch" else ""
    options = _OF_PART.get(name, _OF_VERB[verb])
    return Operation(
        path=path,
        method=method,
        action="connect" if is_connect else _VERB_ACTIONS.get(verb, verb),
        id=_id(kind, served, f"connect{method.capitalize()}" if is_connect else word, name),
        description=f"{word} {name} of a {kind.name}",
        group=part.group or served.group if part.version else served.group,
        version=part.version or served.version,
        kind=part.kind or kind.name,
        parameters=(*_places(path), *_parameters(*options)),
        body=body,
        answer=type_,
        consumes=_consumed(kind, verb),
    )


def _id(kind: Kind, served: Served, word: str, part: str, *, is_everywhere: bool = False) -> str:
    group = served.group.partition(".")[0].capitalize() or "Core"
    scope = "Namespaced" if kind.is_namespaced and not is_everywhere else ""
    suffix = "ForAllNamespaces" if is_everywhere else part.capitalize()
    return f"{word}{group}{served.version.capitalize()}{scope}{kind.name}{suffix}"


def _places(path: str) -> Iterator[Parameter]:
    if "{name}" in path:
        yield Parameter("name", "string", "The object's name.", "path")
    if "{namespace}" in path:
        yield Parameter("namespace", "string", "The object's namespace.", "path")


def _parameters(*names: str) -> Iterator[Parameter]:
    for name in names:
        type_, description = _PARAMETERS[name]
        yield Parameter(name, type_, description)

"""Object store: the generic create, update and delete path of all kinds.

    create: system metadata → field ownership → admit → prepare → validate → admit → commit
    update: read → make new → field ownership → admit → prepare → validate → admit → commit
    delete: preconditions → admit → decide → commit

A commit that fails on a revision conflict is retried from the start, unless the client specified
the revision. Hot path: `create`, 200 µs for a pod without the commit (bench/api.py).
Source: apiserver `registry/generic/registry.Store`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec

from moorage.api import names
from moorage.api.clock import Clock, format_time
from moorage.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    FieldError,
    ForbiddenError,
    InternalError,
    InvalidError,
    NotFoundError,
    StatusError,
    TooLargeError,
)
from moorage.api.numbers import parse_uint
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry import deletion
from moorage.apiserver.registry.deletion import UNREAD_OPTION, Action, DeleteOptions
from moorage.apiserver.registry.expressions import Expressions, evaluate
from moorage.apiserver.registry.kind import Kind, Obj, PartRules, Served
from moorage.apiserver.registry.listing import selected_of
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.request import Attributes, Form, Request, User
from moorage.apiserver.registry.selection import Selection
from moorage.apiserver.registry.stored import Stored, StoredFactory, from_value, to_value
from moorage.apiserver.registry.uids import Uids
from moorage.apiserver.registry.validation.metadata import metadata_errors, metadata_update_errors
from moorage.apiserver.registry.worker import LARGE_OBJECT_BYTES, Worker
from moorage.apiserver.storage import RevisionConflictError, Store, StoreBrokenError, WatchCache

MAX_OBJECT_BYTES: Final = 3 * 1024 * 1024
"""Limit on the JSON. etcd accepts 1.5 MiB of protobuf, which is about half the size."""

P = ParamSpec("P")
R = TypeVar("R")

_GENERATE_TRIES = 8
_UPDATE_TRIES = 16
# Deletions of one collection in progress: enough that a commit carries many.
_DELETED_AT_ONCE = 64


class Admission(Protocol):
    """Admission chain, called between a valid request and the store."""

    async def mutate(self, attributes: Attributes) -> None:
        """Change `attributes.obj` in place. Raises StatusError to refuse."""

    async def validate(self, attributes: Attributes) -> None:
        """Check the write. Raises StatusError to refuse."""


class Updated(msgspec.Struct, frozen=True):
    """The object after an update, and whether the update created it."""

    item: Stored
    is_created: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """The object after a delete step, and whether it was removed."""

    item: Stored
    is_gone: bool


MakeNew = Callable[[Obj | None], Obj]
"""Returns the new object for the present one (None: absent), in the storage version."""

MayDeleteUnread = Callable[[User, Kind, str, str], bool]
"""Returns whether a user may remove an unreadable object, by namespace and name."""

UNREAD_VERB = "unsafe-delete-ignore-read-errors"


class Objects:
    """Reads and writes the objects of one store."""

    def __init__(
        self,
        *,
        store: Store,
        cache: WatchCache[Stored],
        factory: StoredFactory,
        ownership: Ownership,
        admission: Admission,
        clock: Clock,
        worker: Worker,
        evaluator: Evaluator,
        may_delete_unread: MayDeleteUnread = lambda *_: False,
    ) -> None:
        self._may_delete_unread = may_delete_unread
        self._uids = Uids()
        self._store = store
        self._cache = cache
        self._factory = factory
        self._ownership = ownership
        self._admission = admission
        self._clock = clock
        self._worker = worker
        self._evaluator = evaluator

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self._cache.get(kind.key(namespace, name))

    def scan(self, kind: Kind, namespace: str) -> Sequence[Stored]:
        """Return the present objects of a namespace, of all for `""`, in the order of keys."""
        return self._cache.scan(kind.prefix(namespace))

    async def read(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the present object as the kind's version has it.

        Raises as `get`, and StatusError for one that cannot be converted.
        """
        return await _seen(kind, self.get(kind, namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the present object as it is stored.

        Raises NotFoundError, or InternalError if it is damaged.
        """
        item = self.find(kind, namespace, name)
        if item is None:
            self._check_readable(kind.key(namespace, name))
            raise NotFoundError.of(kind.plural, name, group=kind.group)
        return item

    async def create(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        namespace: str,
        obj: Obj,
        *,
        is_applied: bool = False,
    ) -> Stored:
        """Create an object and return it as stored. Raises StatusError for every refusal."""
        meta = obj["metadata"]
        if kind.refuses_new:
            name = meta.get("name", "")
            raise ForbiddenError.of(kind.plural, name, kind.refuses_new, group=kind.group)
        if meta.get("resourceVersion"):
            raise StatusError("resourceVersion should not be set on objects to be created")
        _place_in_namespace(kind, meta, namespace)
        self._fill_system_fields(kind, meta)
        if not is_applied:
            meta.pop("managedFields", None)
            await self._worker.run(request, self._ownership.on_create, request, kind, served, obj)
        # Before a name is generated: a repeated request must get the same error text.
        attributes = Attributes(
            request=request, operation="CREATE", kind=kind, served=served,
            namespace=namespace, name=meta.get("name", ""), obj=obj,
        )  # fmt: skip
        try:
            await self._admission.mutate(attributes)
            return await self._create_named_or_generated(attributes, obj)
        finally:
            attributes.end()

    async def _create_named_or_generated(self, attributes: Attributes, obj: Obj) -> Stored:
        """Create an object under its name, or under generated names until one is free."""
        meta = obj["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return await self._create_named(attributes, obj)
        # Preparation may copy the name into the object: every attempt starts without it.
        unnamed = to_value(obj)
        for _ in range(_GENERATE_TRIES - 1):
            try:
                return await self._create_generated(attributes, obj)
            except AlreadyExistsError:
                obj = from_value(unnamed)
        return await self._create_generated(attributes, obj)

    async def _create_generated(self, attributes: Attributes, obj: Obj) -> Stored:
        meta = obj["metadata"]
        meta["name"] = names.generate_name(meta["generateName"])
        attributes.name, attributes.obj = meta["name"], obj
        return await self._create_named(attributes, obj)

    async def _create_named(self, attributes: Attributes, obj: Obj) -> Stored:
        request, kind = attributes.request, attributes.kind
        namespace, name, strategy = attributes.namespace, attributes.name, kind.strategy
        strategy.prepare_create(obj)
        errors = await self._worker.run(request, _errors_of_new, kind, obj)
        await self._raise_if_invalid(attributes, strategy.expressions, errors)
        await self._admission.validate(attributes)
        await self._worker.run(request, _warn, request, strategy.warn, obj, None)
        key = kind.key(namespace, name)
        if self._cache.get(key) is not None:
            raise AlreadyExistsError.of(kind.plural, name, group=kind.group)
        value = await _value_of(kind, obj)
        if request.is_dry_run:
            return Stored.unsaved(key, to_value(obj), _mark(kind))
        try:
            revision = await self._put(key, value, 0)
        except RevisionConflictError as conflict:
            raise AlreadyExistsError.of(kind.plural, name, group=kind.group) from conflict
        return await _seen(kind, self._as_written(key, revision, value))

    async def update(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        namespace: str,
        name: str,
        make_new: MakeNew,
        *,
        subresource: str = "",
        form: Form | None = None,
        authorize_create: Callable[[], None] | None = None,
        is_patch: bool = False,
        is_applied: bool = False,
    ) -> Updated:
        """Replace an object by the result of `make_new` and return it as stored.

        The new object's resourceVersion, if set, is the revision that must be replaced.
        `form` is that in which webhooks and policies see the object. `authorize_create`: an absent
        object is created, unless this raises ForbiddenError because the user may only change
        objects. `is_patch`: `make_new` kept the present revision unless
        the client specified one, so a revision conflict calls it again. `is_applied`: `make_new` is
        a server-side apply and has set the field ownership.
        """
        key = kind.key(namespace, name)
        for _ in range(_UPDATE_TRIES):
            existing = self._cache.get(key)
            if existing is None:
                self._check_readable(key)
                if authorize_create is None:
                    raise NotFoundError.of(kind.plural, name, group=kind.group)
                authorize_create()
                created = await self._step(request, kind, make_new, None)
                # A request with a UID refers to a deleted object, not to a new one.
                _check_uid(kind, name, created["metadata"], {})
                created["metadata"].pop("resourceVersion", None)
                try:
                    item = await self.create(
                        request, kind, served, namespace, created, is_applied=is_applied
                    )
                except AlreadyExistsError:
                    continue  # Created concurrently: this is an update now.
                return Updated(item, is_created=True)
            existing = await _seen(kind, existing)
            request.is_large = request.is_large or len(existing.tail) > LARGE_OBJECT_BYTES
            old = existing.obj
            new = await self._step(request, kind, make_new, existing.obj)
            must_match = _check_revision(kind, name, new, existing)
            try:
                _keep_system_fields(kind, namespace, name, new, old)
                if not is_applied:
                    await self._step(
                        request, kind, self._ownership.on_update,
                        request, kind, served, new, old, subresource,
                    )  # fmt: skip
                item = await self._replace(
                    request, kind, served, namespace, name, existing, old, new, subresource, form
                )
            except RevisionConflictError as conflict:
                # If the object was deleted concurrently, the retry finds it absent.
                if must_match and not is_patch and conflict.current:
                    raise _modified(kind, name) from conflict
                continue
            return Updated(item)
        raise _modified(kind, name)

    async def _replace(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        namespace: str,
        name: str,
        existing: Stored,
        old: Obj,
        new: Obj,
        subresource: str,
        form: Form | None,
    ) -> Stored:
        attributes = Attributes(
            request=request, operation="UPDATE", kind=kind, served=served,
            namespace=namespace, name=name, obj=new, old=old, subresource=subresource, form=form,
        )  # fmt: skip
        try:
            await self._admission.mutate(attributes)
            return await self._store_change(attributes, existing, old, new)
        finally:
            attributes.end()

    async def _store_change(
        self, attributes: Attributes, existing: Stored, old: Obj, new: Obj
    ) -> Stored:
        """Validate and store an update that mutating admission has seen."""
        request, kind = attributes.request, attributes.kind
        subresource = attributes.subresource
        rules = _update_rules(kind, subresource)
        now = format_time(self._clock.now())
        errors = await self._worker.run(request, _errors_of_change, kind, rules, new, old, now)
        await self._raise_if_invalid(attributes, rules.expressions, errors)
        await self._admission.validate(attributes)
        if not subresource:
            await self._worker.run(request, _warn, request, kind.strategy.warn, new, old)
        if self._ownership.is_same(new, old) and self._is_current(kind, existing):
            return existing
        value = await _value_of(kind, new)
        if request.is_dry_run:
            return self._shown(existing, to_value(new, _mark(kind)))
        if deletion.is_over(kind, new):
            try:
                await self._remove(existing, value)
            except RevisionConflictError as conflict:
                # Another request has removed the last finalizer too. Source: apiserver
                # `registry/generic` `deleteWithoutFinalizers`.
                if conflict.current:
                    raise
            return self._shown(existing, to_value(new, _mark(kind)))
        # Needed while an object is being deleted: status updates and the removal of finalizers.
        ends = "deletionTimestamp" in old["metadata"]
        revision = await self._put(existing.key, value, existing.revision, may_use_reserve=ends)
        return await _seen(kind, self._as_written(existing.key, revision, value))

    def _is_current(self, kind: Kind, existing: Stored) -> bool:
        """Return whether an object is stored as it would be written, in the storage version.

        An update that changes nothing moves a custom resource there, which storage migrations use.
        """
        stored = self._cache.get(existing.key)
        return kind.view is None or stored is None or kind.view.is_current(stored)

    async def _step(
        self,
        request: Request,
        kind: Kind,
        step: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a step of an update, off the loop if it is large or may ask a conversion webhook."""
        if kind.view is not None and kind.view.is_remote:
            return await kind.view.run(step, *args, **kwargs)
        return await self._worker.run(request, step, *args, **kwargs)

    async def _raise_if_invalid(
        self, attributes: Attributes, expressions: Expressions | None, errors: list[FieldError]
    ) -> None:
        """Evaluate the CEL rules, if any. Raises InvalidError with these and the given errors."""
        if expressions is not None:
            new, old = attributes.obj, attributes.old
            assert new is not None, "a deletion is not validated"
            evaluated = await evaluate(expressions, self._evaluator, errors, new, old)
            errors += evaluated.errors
            for sentence in evaluated.warnings:
                attributes.request.warn(sentence)
        if errors:
            kind = attributes.kind
            raise InvalidError.of(kind.name, attributes.name, errors, group=kind.group)

    async def delete(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        namespace: str,
        name: str,
        options: DeleteOptions,
    ) -> Deleted:
        """Start or finish the deletion of an object, and return it as it is stored.

        A custom resource is deleted in the version it is stored in, so that a conversion webhook
        that fails stops neither this nor the end of its namespace or definition.
        """
        if options.ignores_read_errors:
            return await self._delete_unread(request, kind, namespace, name)
        for _ in range(_UPDATE_TRIES):
            existing = self.get(kind, namespace, name)
            kind, served = _as_kept(kind, served, existing)
            obj = existing.obj
            deletion.check_preconditions(kind, obj, options)
            attributes = Attributes(
                request=request, operation="DELETE", kind=kind, served=served,
                namespace=namespace, name=name, obj=None, old=obj, options=options.to_object(),
            )  # fmt: skip
            await self._admission.mutate(attributes)
            await self._admission.validate(attributes)
            try:
                return await self._delete_step(request, kind, existing, obj, options)
            except RevisionConflictError:
                continue
        raise _modified(kind, name)

    async def _delete_unread(
        self, request: Request, kind: Kind, namespace: str, name: str
    ) -> Deleted:
        """Remove an unreadable object without admission, finalizers or grace period.

        Raises InvalidError if it can be read. Source: KEP-3926, unsafe deletion.
        """
        key = kind.key(namespace, name)
        damage = self._cache.damage(key)
        if damage is None:
            self.get(kind, namespace, name)
            why = "is exclusively used to delete corrupt object(s), the object can be read"
            error = FieldError.invalid(UNREAD_OPTION, True, why)
            raise InvalidError.of("DeleteOptions", name, [error], group="meta.k8s.io")
        if not self._may_delete_unread(request.user, kind, namespace, name):
            why = f'not permitted to do "{UNREAD_VERB}"'
            raise ForbiddenError.of(kind.plural, name, why, group=kind.group)
        meta = {"name": name, **({"namespace": namespace} if kind.is_namespaced else {})}
        value = to_value({"metadata": meta})
        if not request.is_dry_run:
            try:
                await self._store.delete(key, value, damage.revision)
            except RevisionConflictError as conflict:
                raise NotFoundError.of(kind.plural, name, group=kind.group) from conflict
            except StoreBrokenError as error:
                raise InternalError.of(f"the deletion could not be stored: {error}") from error
        return Deleted(self._factory(key, damage.revision, value).shown(), is_gone=True)

    async def _delete_step(
        self, request: Request, kind: Kind, existing: Stored, obj: Obj, options: DeleteOptions
    ) -> Deleted:
        decision = deletion.decide(kind, obj, options, self._clock.now())
        if decision.action is Action.KEEP:
            return Deleted(existing, is_gone=False)
        value = to_value(decision.obj, existing.mark)
        is_gone = decision.action is not Action.UPDATE
        if request.is_dry_run:
            return Deleted(self._shown(existing, value), is_gone)
        if decision.action is Action.REMOVE:
            if kind.strategy.grace_seconds is None:
                await self._remove(existing, value)
            else:
                await self._remove_marked(existing, value, options)
            return Deleted(self._shown(existing, value), is_gone=True)
        revision = await self._put(existing.key, value, existing.revision, may_use_reserve=True)
        marked = self._as_written(existing.key, revision, value)
        if decision.action is Action.UPDATE_THEN_REMOVE:
            await self._remove_marked(marked, value, options)
        return Deleted(marked, is_gone)

    async def _remove_marked(self, marked: Stored, value: bytes, options: DeleteOptions) -> None:
        """Remove an object that is marked as deleted, or find that another request has done it.

        A node removes a pod as soon as it sees the mark, and writes its status meanwhile: neither
        fails a deletion whose mark is stored. Raises RevisionConflictError for a revision that the
        options demand. Source: `ignoreNotFound` of apiserver `registry/generic` `Store.Delete`.
        """
        item = marked
        for _ in range(_UPDATE_TRIES):
            try:
                await self._remove(item, value)
                return
            except RevisionConflictError as conflict:
                current = self._cache.get(item.key)
                if not conflict.current or current is None or not _is_one(current, marked):
                    return
                if options.resource_version is not None:
                    raise
                item, value = current, to_value(current.obj, current.mark)
        raise RevisionConflictError(item.key, marked.revision, item.revision)

    async def delete_collection(
        self,
        request: Request,
        kind: Kind,
        served: Served,
        namespace: str,
        selection: Selection,
        options: DeleteOptions,
    ) -> Sequence[Stored]:
        """Delete the selected objects. Returns them as they were before.

        Several are deleted at a time, so that they share commits. After a refusal no further one is
        begun, and it is raised when those in progress are done.
        """
        selected = self._cache.scan(kind.prefix(namespace))
        if not selection.is_everything:
            selected = await selected_of(kind.view, selected, selection)
        waiting = iter(selected)
        refusals: list[Exception] = []

        async def delete_next() -> None:
            for item in waiting:
                try:
                    await self.delete(request, kind, served, item.namespace, item.name, options)
                except NotFoundError:
                    continue
                except StatusError as refusal:
                    refusals.append(refusal)
                if refusals:
                    return

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_DELETED_AT_ONCE, len(selected))):
                tasks.create_task(delete_next())
        if refusals:
            raise refusals[0]
        return selected

    def _check_readable(self, key: str) -> None:
        """Raise InternalError if the object under a key cannot be read."""
        damage = self._cache.damage(key)
        if damage is not None:
            raise InternalError.of(
                f"{damage}: put a copy of the database back, or remove the object by a DELETE "
                f"with {UNREAD_OPTION}=true"
            )

    def _fill_system_fields(self, kind: Kind, meta: Obj) -> None:
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(field, None)
        meta["uid"] = self._uids()
        meta["creationTimestamp"] = format_time(self._clock.now())
        if kind.strategy.spec_of is not None and kind.strategy.counts_creation:
            meta["generation"] = 1

    async def _put(
        self, key: str, value: bytes, expected: int, *, may_use_reserve: bool = False
    ) -> int:
        try:
            return await self._store.put(key, value, expected, may_use_reserve=may_use_reserve)
        except StoreBrokenError as error:
            raise InternalError.of(f"the change could not be stored: {error}") from error

    async def _remove(self, existing: Stored, last: bytes) -> None:
        try:
            await self._store.delete(existing.key, last, existing.revision)
        except StoreBrokenError as error:
            raise InternalError.of(f"the deletion could not be stored: {error}") from error

    def _shown(self, existing: Stored, value: bytes) -> Stored:
        """Return an object for the answer to a dry run, or to a deletion."""
        return self._factory(existing.key, existing.revision, value).shown()

    def _as_written(self, key: str, revision: int, value: bytes) -> Stored:
        item = self._cache.get(key)
        if item is not None and item.revision == revision:
            return item
        return self._factory(key, revision, value)


def _errors_of_new(kind: Kind, obj: Obj) -> list[FieldError]:
    return [*metadata_errors(kind, obj), *kind.strategy.validate(obj)]


def _errors_of_change(
    kind: Kind, rules: PartRules, new: Obj, old: Obj, now: str
) -> list[FieldError]:
    rules.prepare(new, old)
    rules.stamp(new, old, now)
    if rules.raises_generation:
        _raise_generation(kind, new, old)
    return [*metadata_update_errors(new, old), *rules.validate(new, old)]


def _warn(
    request: Request, warn: Callable[[Obj, Obj | None], Iterable[str]], new: Obj, old: Obj | None
) -> None:
    for sentence in warn(new, old):
        request.warn(sentence)


async def _value_of(kind: Kind, obj: Obj) -> bytes:
    """Return the bytes to store. Drops the managed fields if they make the object too large.

    As upstream. Raises TooLargeError, and StatusError for an object that cannot be converted.
    """
    value = await _converted_value(kind, obj)
    if len(value) > MAX_OBJECT_BYTES and obj["metadata"].pop("managedFields", None):
        value = await _converted_value(kind, obj)
    if len(value) > MAX_OBJECT_BYTES:
        raise TooLargeError.limit(MAX_OBJECT_BYTES)
    return value


async def _converted_value(kind: Kind, obj: Obj) -> bytes:
    return to_value(obj) if kind.view is None else await kind.view.value_of(obj)


def _is_one(item: Stored, other: Stored) -> bool:
    """Return whether two revisions are of one object, not of one that took its name later."""
    return bool(item.obj["metadata"].get("uid") == other.obj["metadata"].get("uid"))


def _mark(kind: Kind) -> str:
    return "" if kind.view is None else kind.view.mark


async def _seen(kind: Kind, item: Stored) -> Stored:
    """Return a stored object as the kind's version has it. Raises StatusError."""
    if kind.view is None or kind.view.fits(item):
        return item
    (seen,) = await kind.view.see([item])
    return seen


def _as_kept(kind: Kind, served: Served, item: Stored) -> tuple[Kind, Served]:
    """Return the kind of the version an object is stored in, and the request's version of it."""
    if kind.view is None or kind.view.fits(item):
        return kind, served
    kept = kind.view.kept(item)
    if kept is None:
        return kind, served
    return kept, next(one for one in kept.served if one.version == served.version)


def _place_in_namespace(kind: Kind, meta: Obj, namespace: str) -> None:
    if not kind.is_namespaced:
        meta.pop("namespace", None)
        return
    if meta.setdefault("namespace", namespace) != namespace:
        raise _other_namespace()


def _other_namespace() -> BadRequestError:
    return BadRequestError(
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def _keep_system_fields(kind: Kind, namespace: str, name: str, new: Obj, old: Obj) -> None:
    """Restore server-managed metadata from the old object. Raises for another namespace or UID."""
    meta, was = new["metadata"], old["metadata"]
    if kind.is_namespaced and meta.get("namespace", namespace) != namespace:
        raise _other_namespace()
    _check_uid(kind, name, meta, was)
    meta["name"] = name
    for field in ("namespace", "uid", "creationTimestamp", "deletionTimestamp",
                  "deletionGracePeriodSeconds", "generation"):  # fmt: skip
        if field in was:
            meta[field] = was[field]
        else:
            meta.pop(field, None)
    meta.pop("selfLink", None)


def _check_uid(kind: Kind, name: str, meta: Obj, was: Obj) -> None:
    """Raise ConflictError if `meta` has a UID and the object, {} for none, has another.

    Source: apiserver `storage.Preconditions.Check`, which fails on an absent object too.
    """
    if meta.get("uid") and meta["uid"] != was.get("uid"):
        raise ConflictError.of(
            kind.plural,
            name,
            f"Precondition failed: UID in precondition: {meta['uid']}, "
            f"UID in object meta: {was.get('uid', '')}",
            group=kind.group,
        )


def _update_rules(kind: Kind, subresource: str) -> PartRules:
    strategy = kind.strategy
    if not subresource:
        return PartRules(
            strategy.prepare_update, strategy.validate_update, expressions=strategy.expressions
        )
    return strategy.parts.get(subresource, PartRules())


def _raise_generation(kind: Kind, new: Obj, old: Obj) -> None:
    spec_of = kind.strategy.spec_of
    if spec_of is not None and spec_of(new) != spec_of(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _check_revision(kind: Kind, name: str, new: Obj, existing: Stored) -> bool:
    """Return whether the client specified the revision. Raises ConflictError if it differs."""
    wanted = new["metadata"].get("resourceVersion", "")
    if wanted in ("", "0"):
        if kind.strategy.needs_revision_on_update:
            raise _revision_needed(kind, name)
        return False
    try:
        is_present = parse_uint(wanted) == existing.revision
    except ValueError as error:
        raise StatusError(str(error)) from error
    if not is_present:
        raise _modified(kind, name)
    return True


def _revision_needed(kind: Kind, name: str) -> StatusError:
    error = FieldError.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return InvalidError.of(kind.plural, name, [error], group=kind.group)


def _modified(kind: Kind, name: str) -> StatusError:
    return ConflictError.of(kind.plural, name, ConflictError.MODIFIED, group=kind.group)

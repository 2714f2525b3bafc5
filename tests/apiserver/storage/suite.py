"""What every `Store` must do. A backend's test module subclasses `StoreSuite` and opens it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.apiserver.storage import Change, CompactedError, RevisionConflictError, Store


class StoreSuite:
    """Subclasses provide the fixture `store`: an open, empty store."""

    async def test_a_put_is_found_under_its_key_at_its_revision(self, store: Store) -> None:
        revision = await store.put("pods/a/x", b"1", 0)
        page = await store.range("pods/")
        assert [(e.key, e.revision, e.value) for e in page.entries] == [
            ("pods/a/x", revision, b"1")
        ]
        assert page.revision == store.revision == revision

    async def test_revisions_grow_over_all_keys(self, store: Store) -> None:
        first = await store.put("a/1", b"", 0)
        second = await store.put("b/1", b"", 0)
        third = await store.delete("a/1", b"", first)
        assert first < second < third

    async def test_a_put_at_another_revision_than_expected_is_refused(self, store: Store) -> None:
        revision = await store.put("a/1", b"old", 0)
        for wrong in (0, revision + 1):
            wanted = f"a/1: expected revision {wrong}, found {revision}"
            with pytest.raises(RevisionConflictError, match=wanted) as refusal:
                await store.put("a/1", b"new", wrong)
            assert refusal.value.current == revision
        assert (await store.range("a/")).entries[0].value == b"old"

    async def test_of_many_writers_on_one_revision_one_wins(self, store: Store) -> None:
        start = await store.put("a/1", b"0", 0)
        outcomes = await asyncio.gather(
            *(store.put("a/1", str(i).encode(), start) for i in range(20)), return_exceptions=True
        )
        winners = [o for o in outcomes if isinstance(o, int)]
        losers = [o for o in outcomes if isinstance(o, RevisionConflictError)]
        assert len(winners) == 1
        assert len(losers) == 19

    async def test_a_deleted_key_is_new_again(self, store: Store) -> None:
        first = await store.put("a/1", b"1", 0)
        await store.delete("a/1", b"last", first)
        assert (await store.range("a/")).entries == []
        with pytest.raises(RevisionConflictError):
            await store.delete("a/1", b"", first)
        again = await store.put("a/1", b"2", 0)
        assert again > first

    async def test_listeners_receive_changes_in_order_before_the_writer(self, store: Store) -> None:
        received: list[Change] = []
        store.listen(received.extend)
        first = await store.put("a/1", b"1", 0)
        assert received[-1].revision == first
        last = await store.delete("a/1", b"bye", first)
        assert received[-1] == Change("a/1", last, b"bye", first, is_deletion=True)
        await asyncio.gather(*(store.put(f"b/{i}", b"", 0) for i in range(50)))
        revisions = [change.revision for change in received]
        assert revisions == sorted(revisions)
        assert len(revisions) == 52

    async def test_an_older_state_can_be_read(self, store: Store) -> None:
        first = await store.put("a/1", b"one", 0)
        await store.put("a/2", b"two", 0)
        await store.put("a/1", b"uno", first)
        await store.delete("a/2", b"two", (await store.range("a/2")).entries[0].revision)
        old = await store.range("a/", revision=first)
        assert [(e.key, e.value) for e in old.entries] == [("a/1", b"one")]
        between = await store.range("a/", revision=first + 1)
        assert [e.value for e in between.entries] == [b"one", b"two"]

    async def test_pages_cover_a_prefix_once_in_order(self, store: Store) -> None:
        for i in range(7):
            await store.put(f"a/{i}", b"", 0)
        await store.put("b/0", b"", 0)
        seen: list[str] = []
        after, more = "", True
        while more:
            page = await store.range("a/", after=after, limit=3)
            seen += [entry.key for entry in page.entries]
            after, more = page.entries[-1].key, page.has_more
        assert seen == [f"a/{i}" for i in range(7)]

    async def test_a_prefix_ends_at_its_own_text(self, store: Store) -> None:
        for key in ("a/x", "a/x/y", "a/xy", "a0"):
            await store.put(key, b"", 0)
        assert [e.key for e in (await store.range("a/x/")).entries] == ["a/x/y"]
        assert [e.key for e in (await store.range("a/")).entries] == ["a/x", "a/x/y", "a/xy"]

    async def test_history_returns_each_change_since(self, store: Store) -> None:
        first = await store.put("a/1", b"1", 0)
        second = await store.put("a/1", b"2", first)
        third = await store.delete("a/1", b"2", second)
        await store.put("b/1", b"", 0)
        assert await store.history("a/", first) == [
            Change("a/1", second, b"2", first),
            Change("a/1", third, b"2", second, is_deletion=True),
        ]

    async def test_compaction_keeps_the_present_and_forgets_the_past(self, store: Store) -> None:
        first = await store.put("a/1", b"1", 0)
        second = await store.put("a/1", b"2", first)
        gone = await store.put("a/2", b"", 0)
        last = await store.delete("a/2", b"", gone)
        await store.compact(last)
        assert store.compacted == last
        assert [(e.revision, e.value) for e in (await store.range("a/")).entries] == [
            (second, b"2")
        ]
        with pytest.raises(CompactedError, match=f"{first} is compacted .oldest kept: {last}."):
            await store.range("a/", revision=first)
        with pytest.raises(CompactedError):
            await store.history("a/", first)

    async def test_a_read_that_a_compaction_overtakes_is_refused(self, store: Store) -> None:
        # Reads and the compaction are in flight together; what is answered must be complete.
        revisions = [await store.put(f"a/{i}", b"", 0) for i in range(20)]
        old = store.revision
        for i, revision in enumerate(revisions):
            await store.delete(f"a/{i}", b"", revision)
        outcomes = await asyncio.gather(
            store.compact(store.revision),
            *(store.range("a/", revision=old) for _ in range(20)),
            *(store.history("a/", old) for _ in range(20)),
            return_exceptions=True,
        )
        for outcome in outcomes[1:21]:
            assert isinstance(outcome, CompactedError) or len(outcome.entries) == 20  # type: ignore[union-attr]
        for outcome in outcomes[21:]:
            assert isinstance(outcome, CompactedError) or len(outcome) == 20  # type: ignore[arg-type]

    async def test_the_floor_is_raised_before_anything_is_removed(self, store: Store) -> None:
        first = await store.put("a/1", b"1", 0)
        last = await store.delete("a/1", b"1", first)
        reading = asyncio.ensure_future(store.range("a/", revision=first))
        await asyncio.sleep(0)
        compacting = asyncio.ensure_future(store.compact(last))
        await asyncio.sleep(0)
        assert store.compacted == last
        with pytest.raises(CompactedError, match=f"{first} is compacted .oldest kept: {last}."):
            await store.range("a/", revision=first)
        with pytest.raises(CompactedError):
            await reading
        await compacting

    async def test_keys_above_every_code_point_are_in_range(self, store: Store) -> None:
        keys = ["a/\U0010ffff", "a/\U0010ffff\U0010ffff", "a/\U0010ffffz", "a/\ud7ff", "a/z"]
        for key in keys:
            await store.put(key, b"", 0)
        await store.put("b/1", b"", 0)
        await store.put("\U0010ffff/1", b"", 0)
        assert [e.key for e in (await store.range("a/")).entries] == sorted(keys)
        assert len((await store.range("")).entries) == len(keys) + 2
        assert [e.key for e in (await store.range("\U0010ffff")).entries] == ["\U0010ffff/1"]
        assert len((await store.range("a/\ud7ff")).entries) == 1
        assert len(await store.history("a/\U0010ffff", 0)) == 3

    async def test_a_key_lives_on_through_compactions(self, store: Store) -> None:
        revision = 0
        for step in range(6):
            revision = await store.put("a/1", str(step).encode(), revision)
            if step % 2:
                await store.compact(revision)
        assert (await store.range("a/")).entries[0].value == b"5"
        await store.compact(await store.delete("a/1", b"5", revision))
        assert (await store.range("a/")).entries == []

    async def test_a_cancelled_writer_leaves_a_consistent_store(self, store: Store) -> None:
        task = asyncio.ensure_future(store.put("a/1", b"1", 0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Whether or not it was written, the next writer sees a settled key.
        try:
            await store.put("a/1", b"2", 0)
        except RevisionConflictError as conflict:
            await store.put("a/1", b"2", conflict.current)
        assert (await store.range("a/")).entries[0].value == b"2"

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        st.lists(
            st.tuples(st.sampled_from("xyz"), st.sampled_from(["put", "delete", "compact"])),
            max_size=25,
        )
    )
    async def test_the_log_replayed_gives_the_present_state(
        self, store: Store, steps: list[tuple[str, str]]
    ) -> None:
        start = store.revision
        model = {e.key: (e.revision, e.value) for e in (await store.range("h/")).entries}
        replayed = dict(model)
        received: list[Change] = []
        store.listen(received.extend)
        for number, (name, action) in enumerate(steps):
            key = f"h/{name}"
            expected = model.get(key, (0, b""))[0]
            if action == "put":
                value = str(number).encode()
                model[key] = (await store.put(key, value, expected), value)
            elif action == "delete" and expected:
                await store.delete(key, model.pop(key)[1], expected)
            elif action == "compact":
                await store.compact(store.revision)
        for change in received:
            assert change.revision > start
            if change.is_deletion:
                replayed.pop(change.key)
            else:
                replayed[change.key] = (change.revision, change.value)
        present = {e.key: (e.revision, e.value) for e in (await store.range("h/")).entries}
        assert present == model == replayed

from __future__ import annotations

import uuid

from moorage.apiserver.registry.uids import Uids


def test_uids_are_random_uuids_of_version_4() -> None:
    uids = Uids()
    made = [uids() for _ in range(1000)]
    assert len(set(made)) == len(made)
    parsed = [uuid.UUID(uid) for uid in made]
    assert [str(uid) for uid in parsed] == made
    assert {(uid.version, uid.variant) for uid in parsed} == {(4, uuid.RFC_4122)}
    assert {uid[19] for uid in made} == set("89ab")

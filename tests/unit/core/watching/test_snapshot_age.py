"""How old what a core knows of queues is, as its metric tells."""

from __future__ import annotations

import time

from quintet_core.watching.snapshots import NewestSnapshots

from tests.support.followed import Followed


def grows(newest: NewestSnapshots, until_s: float) -> None:
    while newest.age_s < until_s:
        time.sleep(0.001)


async def test_a_slot_that_is_known_whole_makes_it_young(followed: Followed) -> None:
    store = followed.store
    newest = NewestSnapshots(store, 1000)
    grows(newest, 0.05)
    taken = [await store.take_snapshots(number, 1000, 100) for number in range(store.partitions)]
    before = newest.age_s
    await newest.read_slot(taken)  # type: ignore[arg-type]
    assert newest.age_s < before


async def test_a_slot_that_one_partition_did_not_tell_of_does_not(followed: Followed) -> None:
    newest = NewestSnapshots(followed.store, 1000)
    grows(newest, 0.05)
    await newest.read_slot([None] * followed.store.partitions)
    assert newest.age_s >= 0.05


async def test_where_none_are_taken_nothing_grows_old(followed: Followed) -> None:
    assert NewestSnapshots(followed.store, 0).age_s == 0

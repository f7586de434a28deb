"""What holds the history, the log and the watch of tables together finds where they differ."""

from __future__ import annotations

import pytest
from quintet_core.domain.event import Event, EventKind

from tests.support.row_history import Outcome, RowHistory
from tests.support.table_replay import WITH_ITS_TABLE, TableReplay
from tests.support.table_verdict import log_differs, written_in_parts

ROW = ("table", b"key")


def event(
    offset: int,
    kind: EventKind,
    key: bytes = b"key",
    value: bytes | None = None,
    *,
    at_ms: int = 1000,
    expires_at_ms: int = 0,
    detail: str = "",
) -> Event:
    return Event(
        0, offset, kind, at_ms, "n", "", 0, 0, 0, 0, 0, len(value or b""), 0, detail, "table", key, expires_at_ms, value
    )


def put(offset: int, key: bytes = b"key", value: bytes = b"v", *, at_ms: int = 1000, expires_at_ms: int = 0) -> Event:
    return event(offset, EventKind.ROW_PUT, key, value, at_ms=at_ms, expires_at_ms=expires_at_ms)


class TestTheLogAndWhatClientsSaw:
    """Of puts."""

    def test_agree_when_each_answered_put_is_the_event_of_its_version(self) -> None:
        history = RowHistory()
        history.put("c", ROW, b"v").done(version=3)
        history.put("c", ROW, b"w")
        history.put("c", ROW, b"x", expected_version=9).done(Outcome.MISMATCH)
        assert not list(log_differs(history.operations, [put(3)]))

    def test_agree_when_a_put_in_doubt_happened(self) -> None:
        history = RowHistory()
        history.put("c", ROW, b"v")
        assert not list(log_differs(history.operations, [put(3)]))

    @pytest.mark.parametrize(
        "events", [[], [put(4)], [put(3, b"other")], [put(3), put(4)], [put(3, value=b"w")]], ids=str
    )
    def test_differ_when_the_event_of_an_answered_put_is_not_there_once(self, events: list[Event]) -> None:
        history = RowHistory()
        history.put("c", ROW, b"v").done(version=3)
        assert list(log_differs(history.operations, events))

    def test_differ_when_a_put_in_doubt_happened_twice(self) -> None:
        history = RowHistory()
        history.put("c", ROW, b"v")
        assert list(log_differs(history.operations, [put(3), put(4)]))

    def test_differ_when_a_refused_put_happened(self) -> None:
        history = RowHistory()
        history.put("c", ROW, b"v", expected_version=9).done(Outcome.MISMATCH)
        assert list(log_differs(history.operations, [put(3)]))


class TestSeveralRowsAtOnce:
    """Their values tell how many they are."""

    def test_stand_one_behind_the_other(self) -> None:
        expired = event(2, EventKind.ROW_EXPIRED, b"b")
        assert not list(written_in_parts([put(1, b"a", b"t#0/2"), expired, put(3, b"b", b"t#1/2")]))

    @pytest.mark.parametrize(
        "events",
        [
            [put(1, b"a", b"t#0/2")],
            [put(1, b"b", b"t#1/2"), put(2, b"a", b"t#0/2")],
            [put(1, b"a", b"t#0/2"), put(2, b"c"), put(3, b"b", b"t#1/2")],
            [put(1, b"a", b"t#0/2"), put(2, b"b", b"t#1/2", at_ms=1001)],
        ],
        ids=["one is missing", "another order", "something between", "later"],
    )
    def test_are_found_when_they_do_not(self, events: list[Event]) -> None:
        assert list(written_in_parts(events))


class TestReplay:
    """Events that do not follow from those before."""

    def replayed(self, *events: Event) -> TableReplay:
        replay = TableReplay()
        for each in (event(1, EventKind.TABLE_CREATED, b""), *events):
            replay.play(each)
        return replay

    def test_follows_rows_to_the_end_of_their_table(self) -> None:
        gone = event(4, EventKind.ROW_DELETED, detail=WITH_ITS_TABLE)
        replay = self.replayed(put(2), event(3, EventKind.TABLE_DELETED, b"", detail="1"), gone)
        assert not replay.tables
        assert not replay.is_changing

    @pytest.mark.parametrize(
        "events",
        [
            [put(1)],
            [event(2, EventKind.ROW_DELETED)],
            [put(2), event(3, EventKind.ROW_EXPIRED, value=b"v")],
            [put(2, expires_at_ms=1500), event(3, EventKind.ROW_DELETED, value=b"v", at_ms=1500)],
            [put(2, expires_at_ms=1500), put(3, at_ms=1500)],
            [put(2), put(3, at_ms=999)],
            [event(2, EventKind.TABLE_CREATED, b"")],
            [put(2), event(3, EventKind.TABLE_DELETED, b"", detail="0")],
            [put(2), event(3, EventKind.TABLE_DELETED, b"", detail="1"), event(4, EventKind.TABLE_CREATED, b"")],
        ],
        ids=[
            "told again",
            "not there",
            "expired without a deadline",
            "deleted behind its deadline",
            "put over what has expired",
            "back in time",
            "created twice",
            "not so many rows",
            "rows of an earlier table left",
        ],
    )
    def test_finds_what_cannot_be(self, events: list[Event]) -> None:
        with pytest.raises((AssertionError, KeyError)):
            self.replayed(*events)

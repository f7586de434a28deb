"""What became of tables under load: what clients saw, what the event log says, what a watcher heard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from quintet.v1 import table_service_pb2 as wire
from quintet_core.domain.event import Event, EventKind

from tests.support.linearizability import violations
from tests.support.row_history import Outcome, RowHistory, RowOperation, Verb
from tests.support.row_watcher import RowWatcher, whole_log
from tests.support.table_load import table_service
from tests.support.table_replay import TableReplay


def broken_promises(target: str, history: RowHistory, watcher: RowWatcher, partitions: dict[str, int]) -> list[str]:
    """Everything that is wrong, one line each. `partitions` of the history's tables.

    To be called when nothing changes any more, and the watcher has heard everything.
    """
    log = whole_log(target)
    wrong = [*_heard_otherwise(log, watcher), *_in_the_end(target, log)]
    for partition, events in log.items():
        told = [operation for operation in history.operations if partitions.get(operation.row[0]) == partition]
        _learn_versions(told, events)
        wrong += violations(told)
        wrong += log_differs(told, events)
        wrong += written_in_parts(events)
    return wrong


def _heard_otherwise(log: dict[int, list[Event]], watcher: RowWatcher) -> Iterator[str]:
    """Each event once, in order."""
    for partition, events in log.items():
        heard = watcher.events[partition]
        if heard != events:
            missing = [event for event in events if event not in heard]
            yield f"partition {partition}: {len(heard)} heard of {len(events)}, missing {missing[:3]}"


def _in_the_end(target: str, log: dict[int, list[Event]]) -> Iterator[str]:
    """The log replays to the tables as they are. Nothing may be about to expire."""
    with table_service(target) as service:
        for events in log.values():
            replay = TableReplay()
            for event in events:
                replay.play(event)
            for table, rows in replay.tables.items():
                found = {row.key: (row.version, row.expires_at_ms) for row in scanned(service, table)}
                if found != {key: (row.version, row.expires_at_ms) for key, row in rows.items()}:
                    yield f"{table!r} replays to {rows}, but is {found}"


def scanned(service: Any, table: str) -> Iterator[Any]:
    """All rows."""
    request = wire.ScanRowsRequest(table=table, page_size=1000)
    while True:
        page = service.ScanRows(request)
        yield from page.rows
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _learn_versions(told: Sequence[RowOperation], events: Sequence[Event]) -> None:
    """Of what was done through a protocol that tells no versions and deadlines: the log has them, by the value."""
    puts = {event.value: event for event in events if event.kind == EventKind.ROW_PUT}
    for operation in told:
        event = puts.get(operation.value)
        if operation.outcome is Outcome.OK and operation.version is None and event is not None:
            operation.version, operation.expires_at_ms = event.offset, event.expires_at_ms


def log_differs(told: Sequence[RowOperation], events: Sequence[Event]) -> Iterator[str]:
    """A put that was answered is the event of its version; a delete that was, some event behind its row's; nothing that
    was refused, and nothing twice."""
    puts = {event.offset: event for event in events if event.kind == EventKind.ROW_PUT}
    offsets: dict[bytes | None, list[int]] = defaultdict(list)
    for event in puts.values():
        if event.value is not None:
            offsets[event.value].append(event.offset)
    for operation in told:
        if operation.verb is not Verb.PUT:
            continue
        found = offsets[operation.value]
        if operation.outcome is Outcome.OK:
            put = puts.get(operation.version or 0)
            if put is None or (put.table, put.key) != operation.row or found != [operation.version]:
                yield f"the log tells otherwise: {operation}; {put}; its value at {found}"
        elif len(found) > (operation.outcome is Outcome.IN_DOUBT):
            yield f"the log tells of what was not done, or twice: {operation} at {found}"


def written_in_parts(events: Sequence[Event]) -> Iterator[str]:
    """Writes of several rows, whose values tell how many they are: one behind the other."""
    batches: dict[bytes, list[Event]] = defaultdict(list)
    kinds = {event.offset: event.kind for event in events}
    for event in events:
        if event.value is not None and b"#" in event.value:
            batches[event.value.partition(b"#")[0]].append(event)
    for batch in batches.values():
        count = int((batch[0].value or b"").rpartition(b"/")[2])
        numbers = [int((event.value or b"").rpartition(b"#")[2].partition(b"/")[0]) for event in batch]
        # Rows that expire in favour of a later one stand between them.
        between = set(range(batch[0].offset, batch[-1].offset)) - {event.offset for event in batch}
        is_whole = numbers == list(range(count)) and len({event.at_ms for event in batch}) == 1
        if not is_whole or any(kinds.get(offset) != EventKind.ROW_EXPIRED for offset in between):
            yield f"several rows, but not at once: {batch}"

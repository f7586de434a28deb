"""From what options say to offsets, held against what the log holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintet.v1 import event_service_pb2 as wire

from quintet_spark.source.link import Link, SourceError
from quintet_spark.source.loss import Loss, meet_loss
from quintet_spark.source.options import Options
from quintet_spark.source.position import EARLIEST, LATEST, Offsets, Position

Partitions = Sequence[wire.Partition]


def first_offsets(partitions: Partitions) -> Offsets:
    """Behind which the oldest records stand."""
    return {each.partition: each.first_offset - 1 for each in partitions}


def last_offsets(partitions: Partitions) -> Offsets:
    """Of the newest records."""
    return {each.partition: each.last_offset for each in partitions}


def resolved(position: Position, otherwise: str, link: Link, partitions: Partitions) -> Offsets:
    """The offset of each partition; of those that the position does not name, the first or last (`otherwise`).

    Raises SourceError for offsets that no partition has reached yet."""
    firsts, lasts = first_offsets(partitions), last_offsets(partitions)
    if position.at_ms is not None:
        found = link.offsets_before(position.at_ms)
        return {each: min(max(found.get(each, lasts[each]), firsts[each]), lasts[each]) for each in lasts}
    whole = {EARLIEST: firsts, LATEST: lasts}[position.word or otherwise]
    named = dict(position.offsets)
    beyond = [f"{each}: {at}" for each, at in named.items() if at > lasts.get(each, -1)]
    if beyond:
        raise SourceError(f"offsets that are not there yet, or no partitions: {', '.join(beyond)}; there are {lasts}")
    return {**whole, **named}


def check_reached(offsets: Mapping[int, int], partitions: Partitions, options: Options) -> None:
    """Raises SourceError unless the log has all of `offsets`, or had them."""
    lasts = last_offsets(partitions)
    if set(offsets) != set(lasts):
        raise SourceError(
            f"offsets are of {len(offsets)} partitions, but the core at {options.endpoint} has {len(lasts)}: "
            "they are of another Quintet"
        )
    beyond = [f"partition {each} ends with {lasts[each]}, not {at}" for each, at in offsets.items() if at > lasts[each]]
    if beyond:
        raise SourceError(
            f"the {options.log} log at {options.endpoint} is shorter than what was read of it: {', '.join(beyond)}. "
            "It is of another Quintet, or lost its data"
        )


def held(starts: Mapping[int, int], partitions: Partitions, options: Options) -> Offsets:
    """`starts`, moved on to what is held still. Raises DataLossError unless that is allowed, and SourceError when the
    offsets are of another log."""
    check_reached(starts, partitions, options)
    for each in partitions:
        if starts[each.partition] < each.first_offset - 1:
            meet_loss(Loss(options.log, each.partition, starts[each.partition], each.first_offset), options)
    return {each.partition: max(starts[each.partition], each.first_offset - 1) for each in partitions}

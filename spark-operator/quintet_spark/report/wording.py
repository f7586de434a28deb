"""Numbers, times and names as people read them. Names come from anybody and may hold any character."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

NAME_SHOWN_MAX = 60
THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"
UNKNOWN = "\N{EN DASH}"
# Control, format (also those that turn the direction of writing), surrogate, private, unassigned; line, paragraph.
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def visible(text: str) -> str:
    r"""The text with what cannot be seen written as \u{...}. Not escaped for HTML: the template does that."""
    return "".join(f"\\u{{{ord(each):x}}}" if unicodedata.category(each) in _UNSEEN else each for each in text)


def shortened(text: str, length_max: int = NAME_SHOWN_MAX) -> str:
    """The text, or its two ends when it is longer than length_max characters."""
    if len(text) <= length_max:
        return text
    head = length_max * 2 // 3
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (length_max - head - 1) :]}"


def name(text: str | None) -> str:
    """A name to show in a line."""
    return shortened(visible(text)) if text else "(empty name)"


def count(number: int | None) -> str:
    """12 345 with narrow spaces."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", THIN_SPACE)


def plural(number: int, noun: str) -> str:
    """ "1 job", "2 jobs"."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share, 0 to 1, never rounded up to 100 % nor down to 0 %."""
    if share is None:
        return UNKNOWN
    if share in (0, 1):
        return f"{share * 100:.0f}{THIN_SPACE}%"
    if share < 0.0001:
        return f"<{THIN_SPACE}0.01{THIN_SPACE}%"
    digits = 2 if share > 0.99 or share < 0.01 else 1
    # Cut, not rounded: 99.996 % is not 100 %.
    scale = 10**digits
    return f"{int(share * 100 * scale + 1e-9) / scale:g}" + f"{THIN_SPACE}%"


def duration(ms: float | None) -> str:
    """Two significant units at most: 850 ms, 1.2 s, 3 min 20 s, 4 h 5 min, 2 d 3 h."""
    if ms is None:
        return UNKNOWN
    if ms < _SECOND_MS:
        return f"{ms:.0f}{THIN_SPACE}ms"
    if ms < 59_950:
        return f"{round(ms / _SECOND_MS, 1):g}{THIN_SPACE}s"
    for unit, word, small, small_word in (
        (_DAY_MS, "d", _HOUR_MS, "h"),
        (_HOUR_MS, "h", _MINUTE_MS, "min"),
        (_MINUTE_MS, "min", _SECOND_MS, "s"),
    ):
        whole = round(ms / small) * small
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit}{THIN_SPACE}{word}" + (f" {rest}{THIN_SPACE}{small_word}" if rest else "")
    raise AssertionError("less than a minute, but not less than 59.95 s")


def rate(per_second: float | None) -> str:
    """Jobs in the unit that gives a number to remember: a second, a minute, an hour."""
    if per_second is None:
        return UNKNOWN
    if per_second == 0:
        return "0"
    for factor, word in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1 or word == "h":
            number = per_second * factor
            return f"{number:,.{1 if number < 100 else 0}f}/{word}".replace(",", THIN_SPACE)
    raise AssertionError("an hour is the last unit")


def slope(per_hour: float | None) -> str:
    """A backlog's growth with its sign; as many digits as tell something."""
    if per_hour is None:
        return UNKNOWN
    digits = 0 if abs(per_hour) >= 100 else 1 if abs(per_hour) >= 1 else 2
    return f"{per_hour:+,.{digits}f}".replace(",", THIN_SPACE).replace("-", "\N{MINUS SIGN}")


def instant(at_ms: float | None) -> str:
    """2026-03-01 14:05 (UTC; the page says so once)."""
    if at_ms is None:
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).strftime("%Y-%m-%d %H:%M")


def moment(at_ms: float) -> str:
    """2026-03-01 14:05, and the seconds where there are any."""
    seconds = int(at_ms // _SECOND_MS) % 60
    return instant(at_ms) + (f":{seconds:02}" if seconds else "")


def listed(names: list[str], shown_max: int = 3) -> str:
    """ "a", "b" and 5 more."""
    shown = [f"\N{LEFT DOUBLE QUOTATION MARK}{each}\N{RIGHT DOUBLE QUOTATION MARK}" for each in names[:shown_max]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

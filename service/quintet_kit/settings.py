"""Settings from the environment.

A process declares one frozen subclass of `ProcessSettings`; each field is the variable `QUINTET_<FIELD>`. A field
that holds a secret (`SecretStr`) may instead be named by a file: `QUINTET_<FIELD>_FILE`. Every fault is reported at
once, one line each, and the process ends with `EX_CONFIG` (78) so that a supervisor can tell it from a crash.
"""

import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BeforeValidator, Field, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from quintet_kit.environment import variables

PREFIX = "QUINTET_"
EX_CONFIG = 78
SECRET_FILE_BYTES_MAX = 64 * 1024


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 means any free one."""
Milliseconds = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]
"""A list written `a,b,c`; empty parts are dropped."""
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "readable"]


class SettingsFaultsError(Exception):
    """Some settings are wrong; `lines` names each with its value and its bound."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class Settings(BaseSettings):
    """Base of every settings class: frozen, prefix `QUINTET_`, defaults checked like given values."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", validate_default=True, env_ignore_empty=True
    )


class ProcessSettings(Settings):
    """What every long-running process of Quintet can be told."""

    log_level: LogLevel = Field("info", description="Least severe log line that is written.")
    log_format: LogFormat = Field(
        "auto", description="JSON lines, readable lines, or (auto) readable at a terminal and JSON elsewhere."
    )
    metrics_host: str = Field("127.0.0.1", description="Address of /metrics, /healthz and /readyz.")
    ready_file: Path | None = Field(
        None, description="Where to write what listens where, as JSON, once the process is ready to serve."
    )
    drain_delay_ms: Milliseconds = Field(
        0, description="Between reporting not ready and refusing new work, so that load balancers notice."
    )


S = TypeVar("S", bound=Settings)


def load(settings_class: type[S], **given: object) -> S:
    """Read the settings from the environment; `given` wins over it (tests and command lines).

    Raises `SettingsFaultsError` with every fault at once.
    """
    secrets, faults = _read_secret_files(settings_class)
    try:
        values: dict[str, Any] = {**secrets, **given}
        settings = settings_class(**values)
    except ValidationError as error:
        faults.extend(_fault_line(settings_class, detail) for detail in error.errors())
    if faults:
        raise SettingsFaultsError(faults)
    return settings


def load_or_exit(settings_class: type[S], **given: object) -> S:
    """`load`, or print every fault to stderr and end the process with `EX_CONFIG`."""
    try:
        return load(settings_class, **given)
    except SettingsFaultsError as faults:
        sys.stderr.write(f"{faults}\n")
        raise SystemExit(EX_CONFIG) from None


def variable_of(field_name: str) -> str:
    """`redis_url` -> `QUINTET_REDIS_URL`."""
    return PREFIX + field_name.upper()


def settings_table(settings_class: type[Settings]) -> str:
    """A markdown table of every setting of a class: variable, default, bound, meaning."""
    rows = ["| setting | default | must be | meaning |", "| --- | --- | --- | --- |"]
    for name, field in settings_class.model_fields.items():
        cells = (_shown_variable(name, field), _shown_default(field), _bound_of(field), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _read_secret_files(settings_class: type[Settings]) -> tuple[dict[str, object], list[str]]:
    """What `QUINTET_<FIELD>_FILE` variables hold, by field, and what is wrong with them."""
    environment = variables()
    secrets: dict[str, object] = {}
    faults: list[str] = []
    for name in (name for name, field in settings_class.model_fields.items() if _is_secret(field.annotation)):
        variable = variable_of(name) + "_FILE"
        path = environment.get(variable)
        if path and variable_of(name) in environment:
            faults.append(f"{variable_of(name)}: value (secret), must be unset where {variable} is set")
        elif path:
            try:
                secrets[name] = _read_secret(Path(path))
            except ValueError as fault:
                faults.append(f"{variable}: value {path!r}, must be {fault}")
    return secrets, faults


def _read_secret(path: Path) -> str:
    """The file's text without one trailing line end. Raises ValueError with what the file must be."""
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"a readable file ({error.strerror})") from None
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise ValueError(f"a file of at most {SECRET_FILE_BYTES_MAX} bytes")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("a file of UTF-8 text") from None


def _fault_line(settings_class: type[Settings], error: ErrorDetails) -> str:
    if not error["loc"]:
        return f"settings: {_sentence(error)}"
    name = str(error["loc"][0])
    field = settings_class.model_fields.get(name)
    if field is None:
        return f"{variable_of(name)}: {_sentence(error)}"
    if error["type"] == "missing":
        return f"{variable_of(name)}: not set, must be {_bound_of(field)}"
    value = "(secret)" if _is_secret(field.annotation) else repr(error["input"])
    bound = _sentence(error) if error["type"] in {"value_error", "assertion_error"} else _bound_of(field)
    return f"{variable_of(name)}: value {value}, must be {bound}"


def _sentence(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").removeprefix("must be ")


def _is_secret(annotation: object) -> bool:
    return annotation in (SecretStr, SecretBytes) or any(_is_secret(part) for part in get_args(annotation))


def _shown_variable(name: str, field: FieldInfo) -> str:
    variable = f"`{variable_of(name)}`"
    return f"{variable} or `{variable_of(name)}_FILE`" if _is_secret(field.annotation) else variable


def _shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ("", ()):
        return ""
    if isinstance(value, (SecretStr, SecretBytes)):
        return "(secret)"
    return f"`{_shown_value(value)}`"


def _shown_value(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value)


def _bound_of(field: FieldInfo) -> str:
    """What a value must be, in words; from the type and its constraints."""
    kind = _kind_of(field.annotation)
    limits = [f"{words} {limit}" for words, limit in _limits_of(field.metadata)]
    return f"{kind} {' and '.join(limits)}".strip()


_LIMIT_WORDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "min_length": "of length at least",
    "max_length": "of length at most",
    "pattern": "matching",
}


def _limits_of(metadata: Iterable[object]) -> Iterator[tuple[str, object]]:
    """Lower bounds first, whatever order the constraints were declared in."""
    constraints = tuple(metadata)
    for attribute, words in _LIMIT_WORDS.items():
        for constraint in constraints:
            limit = getattr(constraint, attribute, None)
            if limit is not None:
                yield words, limit


def _kind_of(annotation: object) -> str:
    names: dict[object, str] = {
        int: "an integer",
        float: "a number",
        bool: "0 or 1",
        str: "text",
        Path: "a path",
        SecretStr: "a secret",
        SecretBytes: "a secret",
    }
    if annotation in names:
        return names[annotation]
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind_of(get_args(annotation)[0])
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join(_kind_of(part) for part in get_args(annotation) if part is not type(None))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "one of " + ", ".join(str(member.value) for member in annotation)
    if origin in (tuple, list, set, frozenset):
        return "a list `a,b,c`"
    return getattr(annotation, "__name__", str(annotation))

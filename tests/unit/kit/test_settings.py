"""Settings come from the environment, and every fault is told at once."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, SecretStr, model_validator
from quintet_kit import settings
from quintet_kit.settings import CommaSeparated, Milliseconds, Port, Settings, SettingsFaultsError


class ExampleSettings(Settings):
    port: Port = Field(8080, description="Where to listen.")
    lease_ms: Milliseconds = Field(300_000, le=86_400_000, description="How long a lease lasts.")
    dialect: Literal["strict", "course"] = Field("strict", description="Which text of the course | both.")
    password: SecretStr | None = Field(None, description="For Redis.")
    names: CommaSeparated = Field((), description="Names.")

    @model_validator(mode="after")
    def _port_fits_dialect(self) -> "ExampleSettings":
        if self.port == 1 and self.dialect == "course":
            raise ValueError("QUINTET_PORT 1 does not go with QUINTET_DIALECT course")
        return self


def test_a_field_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTET_PORT", "9000")
    monkeypatch.setenv("QUINTET_NAMES", "a, b,,c")
    loaded = settings.load(ExampleSettings)
    assert (loaded.port, loaded.names, loaded.dialect) == (9000, ("a", "b", "c"), "strict")


def test_given_values_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTET_PORT", "9000")
    assert settings.load(ExampleSettings, port=1).port == 1


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTET_PORT", "")
    assert settings.load(ExampleSettings).port == 8080


def test_every_fault_is_reported_at_once_with_name_value_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTET_PORT", "70000")
    monkeypatch.setenv("QUINTET_LEASE_MS", "soon")
    monkeypatch.setenv("QUINTET_DIALECT", "loose")
    with pytest.raises(SettingsFaultsError) as faults:
        settings.load(ExampleSettings)
    assert faults.value.lines == (
        "QUINTET_PORT: value '70000', must be an integer at least 0 and at most 65535",
        "QUINTET_LEASE_MS: value 'soon', must be an integer at least 0 and at most 86400000",
        "QUINTET_DIALECT: value 'loose', must be one of strict, course",
    )


def test_a_fault_between_settings_is_told_in_its_own_words() -> None:
    with pytest.raises(SettingsFaultsError, match="QUINTET_PORT 1 does not go with QUINTET_DIALECT course"):
        settings.load(ExampleSettings, port=1, dialect="course")


def test_faults_end_the_process_with_ex_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUINTET_PORT", "-1")
    with pytest.raises(SystemExit) as end:
        settings.load_or_exit(ExampleSettings)
    assert end.value.code == 78
    assert capsys.readouterr().err.startswith("QUINTET_PORT: value '-1', must be ")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings.load(ExampleSettings).port = 1  # type: ignore[misc]


def test_a_secret_comes_from_a_file_without_its_line_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2 \n")
    monkeypatch.setenv("QUINTET_PASSWORD_FILE", str(tmp_path / "password"))
    loaded = settings.load(ExampleSettings)
    assert loaded.password is not None
    assert loaded.password.get_secret_value() == "hunter2 "
    assert "hunter2" not in repr(loaded)


@pytest.mark.parametrize(
    ("content", "bound"),
    [
        (None, "a readable file (No such file or directory)"),
        (b"\xff", "a file of UTF-8 text"),
        (b"x" * 65537, "at most"),
    ],
)
def test_a_bad_secret_file_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, bound: str
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("QUINTET_PASSWORD_FILE", str(path))
    monkeypatch.setenv("QUINTET_PORT", "x")
    with pytest.raises(SettingsFaultsError) as faults:
        settings.load(ExampleSettings)
    assert len(faults.value.lines) == 2
    assert bound in faults.value.lines[0]


def test_a_secret_set_twice_is_a_fault_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUINTET_PASSWORD", "hunter2")
    monkeypatch.setenv("QUINTET_PASSWORD_FILE", str(tmp_path / "password"))
    with pytest.raises(SettingsFaultsError) as faults:
        settings.load(ExampleSettings)
    assert "hunter2" not in str(faults.value)


def test_the_table_names_every_setting_with_default_bound_and_meaning() -> None:
    assert settings.settings_table(ExampleSettings).splitlines()[2:] == [
        "| `QUINTET_PORT` | `8080` | an integer at least 0 and at most 65535 | Where to listen. |",
        "| `QUINTET_LEASE_MS` | `300000` | an integer at least 0 and at most 86400000 | How long a lease lasts. |",
        "| `QUINTET_DIALECT` | `strict` | one of strict, course | Which text of the course \\| both. |",
        "| `QUINTET_PASSWORD` or `QUINTET_PASSWORD_FILE` |  | a secret | For Redis. |",
        "| `QUINTET_NAMES` |  | a list `a,b,c` | Names. |",
    ]

"""The core's settings: what fits together, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from quintet_core.domain.limits import Limits
from quintet_core.settings import CoreSettings
from quintet_kit.settings import SettingsFaultsError, load


def faults(**given: object) -> str:
    with pytest.raises(SettingsFaultsError) as caught:
        load(CoreSettings, **given)
    return str(caught.value)


def test_defaults_are_the_limits_of_the_domain() -> None:
    assert load(CoreSettings).limits == Limits()


def test_a_core_that_listens_nowhere_is_refused() -> None:
    assert "QUINTET_CORE_TCP" in faults(core_tcp=False)
    assert not load(CoreSettings, core_tcp=False, core_socket="core.sock").core_tcp


def test_a_socket_path_is_made_absolute_and_must_fit() -> None:
    settings = load(CoreSettings, core_socket="core.sock")
    assert settings.core_socket == Path.cwd() / "core.sock"
    assert "at most 107 bytes" in faults(core_socket="/" + "x" * 107)


@pytest.mark.parametrize("url", ["http://x", "", "localhost:6379"])
def test_a_url_must_be_of_redis(url: str) -> None:
    assert "QUINTET_REDIS_URL" in faults(redis_url=url)


def test_certificates_come_with_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert "QUINTET_TLS_CERT_FILE and QUINTET_TLS_KEY_FILE" in faults(tls_key_file=file)
    assert "QUINTET_REDIS_CERT_FILE and QUINTET_REDIS_KEY_FILE" in faults(redis_cert_file=file)
    assert "QUINTET_TLS_CLIENT_CA_FILE needs" in faults(tls_client_ca_file=file)
    load(CoreSettings, tls_cert_file=file, tls_key_file=file, tls_client_ca_file=file)


def test_a_secret_is_not_shown() -> None:
    assert "sesame" not in repr(load(CoreSettings, redis_password="sesame"))

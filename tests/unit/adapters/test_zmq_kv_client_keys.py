"""Public keys of ZeroMQ clients as files hold them."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
import zmq.auth
import zmq.utils.z85
from quintet_adapters.transports.zeromq.client_keys import ClientKeys, is_secret_key, read_public_key

PUBLIC, SECRET = zmq.curve_keypair()
RAW = zmq.utils.z85.decode(PUBLIC)


class TestAFile:
    @pytest.mark.parametrize("text", [PUBLIC, PUBLIC + b"\n", b"  " + PUBLIC + b"\r\n"], ids=lambda _: "case")
    def test_is_forty_characters_of_z85(self, text: bytes) -> None:
        assert read_public_key(text) == RAW

    def test_is_a_certificate(self, tmp_path: Path) -> None:
        public_file, secret_file = zmq.auth.create_certificates(tmp_path, "one")
        key, _ = zmq.auth.load_certificate(secret_file)
        for path in (public_file, secret_file):
            assert read_public_key(Path(path).read_bytes()) == zmq.utils.z85.decode(key)

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"\n",
            PUBLIC[:39],
            PUBLIC + b"x",
            b"~" * 40,
            b"#" * 40,
            b"\xff" * 40,
            b'public-key = "short"',
            PUBLIC * 2,
        ],
        ids=lambda _: "case",
    )
    def test_of_something_else_is_no_key(self, text: bytes) -> None:
        assert read_public_key(text) is None


class TestADirectory:
    def test_is_what_its_files_hold(self, tmp_path: Path) -> None:
        (tmp_path / "one").write_bytes(PUBLIC)
        (tmp_path / "nonsense").write_bytes(b"nonsense")
        (tmp_path / "folder").mkdir()
        assert ClientKeys(tmp_path).read() == {RAW}

    def test_that_is_not_there_holds_none(self, tmp_path: Path) -> None:
        assert ClientKeys(tmp_path / "nowhere").read() == frozenset()


class TestASecretKey:
    def test_is_known_by_its_form(self) -> None:
        assert is_secret_key(SECRET.decode())
        for text in ("", "x", "~" * 40, "é" * 40, SECRET.decode() + "x"):
            assert not is_secret_key(text)

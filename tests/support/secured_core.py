"""A core that asks for a certificate and a token on its TCP listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.support.core import core_in
from tests.support.stack import CorePart

HOST, CLIENT_HOST = "localhost", "client.example"
"""What certificates are for."""


@contextmanager
def secured_core(folder: Path, authority: trustme.CA, tokens: str) -> Iterator[CorePart]:
    """It runs within the block. `tokens`: its tokens file, `tokens.toml` in the folder, where `ca.pem` is, too."""
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate, key = write_certificate(folder, "core", authority.issue_cert(HOST))
    (folder / "tokens.toml").write_text(tokens)
    settings = {
        "QUINTET_TLS_CERT_FILE": str(certificate),
        "QUINTET_TLS_KEY_FILE": str(key),
        "QUINTET_TLS_CLIENT_CA_FILE": str(folder / "ca.pem"),
        "QUINTET_TOKENS_FILE": str(folder / "tokens.toml"),
    }
    with core_in(folder, **settings) as core:
        yield core


def write_certificate(folder: Path, name: str, certificate: trustme.LeafCert) -> tuple[Path, Path]:
    """Files of a certificate, with its chain, and of its key."""
    chain, key = folder / f"{name}-cert.pem", folder / f"{name}-key.pem"
    certificate.private_key_pem.write_to_path(key)
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    return chain, key

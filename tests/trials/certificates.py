"""Certificates that nobody vouches for."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate, and its private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder().subject_name(named).issuer_name(named).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return cert, private

"""Keys and certificates of a federation on this machine."""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_node_key(path: Path) -> None:
    """A SuperNode's private key, and beside it the public one: PATH.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.PrivateFormat.OpenSSH
    none = serialization.NoEncryption()
    _write_private(path, key.private_bytes(serialization.Encoding.PEM, openssh, none))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def write_certificates(folder: Path, host: str) -> None:
    """ca.crt of a certificate authority that lasts a month; server.pem and server.key for one address."""
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedmux local federation")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    today = datetime.datetime.now(datetime.UTC)

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(hours=1))
            .not_valid_after(today + datetime.timedelta(days=30))
        )

    ca = certificate(issuer, ca_key).add_extension(x509.BasicConstraints(True, None), critical=True)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))]
    )
    server = certificate(subject, server_key).add_extension(names, critical=False)
    (folder / "ca.crt").write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    (folder / "server.pem").write_bytes(server.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    private = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    _write_private(folder / "server.key", private)


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)

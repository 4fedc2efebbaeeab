"""A certificate authority for tests, and what it signed."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(slots=True)
class Authority:
    """Signs certificates and puts them into files of its directory."""

    directory: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca_file(self) -> str:
        """Its own certificate."""
        return str(self.directory / "ca.pem")

    def issue(self, name: str, *alternatives: x509.GeneralName) -> tuple[str, str]:
        """Certificate and key files for `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        own_key = self.key.public_key()
        builder = _builder(name, self.certificate.subject, key.public_key(), own_key)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        stem = name.replace("/", "_")
        paths = (self.directory / f"{stem}.pem", self.directory / f"{stem}.key")
        paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return str(paths[0]), str(paths[1])

    def client_context(self, *files: str) -> ssl.SSLContext:
        """What a client trusts and, with certificate and key `files`, shows."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if files:
            context.load_cert_chain(*files)
        return context


def _builder(
    name: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        # Python 3.13 and newer takes no certificate without these.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(signed_by, critical=False)
    )


def make_authority(directory: Path, name: str = "Test CA") -> Authority:
    """A new authority whose files go into `directory`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(name, subject, key.public_key(), key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    authority = Authority(directory, key, certificate)
    Path(authority.ca_file).write_bytes(certificate.public_bytes(Encoding.PEM))
    return authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that servers and clients of a test run trust."""
    return make_authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def server_files(authority: Authority) -> tuple[str, str]:
    """Certificate and key of a server on this machine."""
    return authority.issue(
        "localhost",
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    )


@pytest.fixture(scope="session")
def client_files(authority: Authority) -> tuple[str, str]:
    """Certificate and key of a client that is ann@example.com."""
    return authority.issue("ann", x509.RFC822Name("ann@example.com"))

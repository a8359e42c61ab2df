"""KafkaConfig: the Kafka cluster that holds the logs, and how all clients prove who they are to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from sharegroup.config.model import HIDDEN, Allowed, Config, invalid_relation, invalid_value
from sharegroup.errors import ConfigurationError

_SERVER = re.compile(r"((?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[0-9a-fA-F:.%]+\]|[^\s:,\[\]/]+):[0-9]{1,5}")

_PEM = "Set ssl.ca.location, ssl.certificate.location and ssl.key.location to PEM files, which all clients can read."

_JAVA_TLS = (
    "security.providers",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
_JAVA_SASL = (
    "sasl.client.callback.handler.class",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)


_SECRET_KEY = re.compile(r"(^|\.)(sasl|ssl|state\.table\.storage|sink\.storage)\.")


def is_secret_key(key: str) -> bool:
    """Return True if the value of a key, known or misspelt, must not be shown."""
    # A key may have the name of its section before it.
    return _SECRET_KEY.search(key) is not None or "password" in key or "secret" in key


def _check_servers(value: str) -> str:
    for server in value.split(","):
        if value and not _SERVER.fullmatch(server.strip()):
            raise invalid_value(f"Invalid url in bootstrap.servers: {server.strip()}")
    return value


def _in_capitals(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _quoted(value: str) -> str:
    """Quote a value of a JAAS configuration."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _pem_text(key: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The file {path} of {key} cannot be read: {error}.", "Give a PEM file.") from error


class KafkaConfig(Config):
    """Configuration of the Kafka cluster; every client of every program has its TLS and SASL settings.

    Keys have the names of Kafka's own clients, or of confluent-kafka where those need Java. Passwords are shown in
    no error, log or `repr`.
    """

    refused: ClassVar[Mapping[str, str]] = {
        "sasl.jaas.config": "Set sasl.mechanism, sasl.username and sasl.password instead.",
        "sasl.mechanisms": "Set sasl.mechanism instead.",
        "ssl.keystore.certificate.chain": _PEM,
        "ssl.keystore.key": _PEM,
        "ssl.keystore.location": _PEM,
        "ssl.keystore.password": _PEM,
        "ssl.keystore.type": _PEM,
        "ssl.truststore.certificates": _PEM,
        "ssl.truststore.location": _PEM,
        "ssl.truststore.password": _PEM,
        "ssl.truststore.type": _PEM,
        **dict.fromkeys(
            _JAVA_TLS, "TLS is OpenSSL's, with its defaults; the files are set by ssl.ca.location and others."
        ),
        **dict.fromkeys(
            _JAVA_SASL, "Clients log in by PLAIN or SCRAM: set sasl.mechanism, sasl.username, sasl.password."
        ),
    }
    refusal: ClassVar[str] = "is not known to all clients"

    bootstrap_servers: Annotated[str, AfterValidator(_check_servers), Allowed("host:port, comma-separated")] = Field(
        default="", description="Brokers to find the cluster by; empty is no Kafka."
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_in_capitals)
    ] = Field(default="PLAINTEXT", description="Whether connections are encrypted, and whether clients log in.")
    sasl_mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Allowed("`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`")
    ] = Field(default="", description="How clients log in, with the two SASL protocols.")
    sasl_username: str = Field(default="", description="The user that logs in.")
    sasl_password: SecretStr = Field(default=SecretStr(""), description="The password of that user.")
    ssl_ca_location: str = Field(
        default="", description="PEM file of the authorities that brokers are trusted by; empty is the system's."
    )
    ssl_certificate_location: str = Field(default="", description="PEM file of the client's certificate.")
    ssl_key_location: str = Field(default="", description="PEM file of the client's key.")
    ssl_key_password: SecretStr = Field(default=SecretStr(""), description="The password of that key.")
    ssl_endpoint_identification_algorithm: Literal["https", "none"] = Field(
        default="https", description="Whether a broker's certificate must name its host."
    )

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        protocol, mechanism = "security.protocol", "sasl.mechanism"
        for server in self.bootstrap_servers.split(","):
            scheme = server.strip().rpartition("://")[0]
            if scheme and scheme.upper() != self.security_protocol:
                text = f"{server.strip()} of bootstrap.servers contradicts {protocol} {self.security_protocol}"
                raise invalid_relation(text, "bootstrap.servers", protocol)
        is_sasl = self.security_protocol.startswith("SASL_")
        if is_sasl and not (self.sasl_mechanism and self.sasl_username and self.sasl_password.get_secret_value()):
            text = f"{protocol} {self.security_protocol} needs {mechanism}, sasl.username and sasl.password"
            raise invalid_relation(text, protocol, mechanism, "sasl.username", "sasl.password")
        if not is_sasl and (self.sasl_mechanism or self.sasl_username or self.sasl_password.get_secret_value()):
            text = f"{protocol} must be SASL_PLAINTEXT or SASL_SSL to log in, not {self.security_protocol}"
            raise invalid_relation(text, protocol, mechanism, "sasl.username", "sasl.password")
        return self

    def client_properties(self) -> dict[str, str]:
        """Return the configuration of confluent-kafka's clients; it holds secrets."""
        properties: dict[str, str] = {}
        for key in self.key_names():
            value = self.value(key)
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            if text:
                properties[key] = text
        return properties

    def java_client_properties(self) -> dict[str, str]:
        """Return the configuration of Kafka's Java clients; it holds secrets.

        Certificate and key are read here and go as texts, so that they need not be where the client is.

        Raises:
            ConfigurationError: a PEM file cannot be read.
        """
        is_verified = self.ssl_endpoint_identification_algorithm == "https"
        properties = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "ssl.endpoint.identification.algorithm": "https" if is_verified else "",
        }
        if self.sasl_mechanism:
            module = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
            user, password = map(_quoted, (self.sasl_username, self.sasl_password.get_secret_value()))
            properties["sasl.mechanism"] = self.sasl_mechanism
            properties["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module}LoginModule required username={user} password={password};"
            )
        if self.ssl_ca_location:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.certificates"] = _pem_text("ssl.ca.location", self.ssl_ca_location)
        if self.ssl_certificate_location:
            properties["ssl.keystore.type"] = "PEM"
            properties["ssl.keystore.certificate.chain"] = _pem_text(
                "ssl.certificate.location", self.ssl_certificate_location
            )
            properties["ssl.keystore.key"] = _pem_text("ssl.key.location", self.ssl_key_location)
        if self.ssl_key_password.get_secret_value():
            properties["ssl.key.password"] = self.ssl_key_password.get_secret_value()
        return properties

    def without_secrets(self, text: str) -> str:
        """Hide every secret of this configuration in a text."""
        for key in self.key_names():
            value = self.value(key)
            if isinstance(value, SecretStr) and value.get_secret_value():
                text = text.replace(value.get_secret_value(), HIDDEN)
        return text

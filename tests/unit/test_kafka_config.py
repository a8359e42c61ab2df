"""The configuration of Kafka clients: what is accepted, what is passed on, what is never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import load_settings
from sharegroup.errors import ConfigurationError

SECRET = "hunter2-Qx8"
PATHS = "processor:\n  state.table.path: state\n  checkpoint.path: checkpoint\n"
SASL = {
    "bootstrap.servers": "b1:9093, b2:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": SECRET,
    "ssl.ca.location": "/etc/ca.pem",
}


def test_settings_reach_the_clients() -> None:
    config = KafkaConfig.from_mapping(SASL)
    assert config.client_properties() == {**SASL, "ssl.endpoint.identification.algorithm": "https"}
    assert KafkaConfig(bootstrap_servers="b:1").client_properties() == {
        "bootstrap.servers": "b:1",
        "security.protocol": "PLAINTEXT",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_settings_reach_java_clients(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / f"{name}.pem").write_text(f"-- {name} --")
    config = KafkaConfig.from_mapping(
        {
            **SASL,
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "certificate.pem"),
            "ssl.key.location": str(tmp_path / "key.pem"),
            "ssl.key.password": SECRET,
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert config.java_client_properties() == {
        "bootstrap.servers": "b1:9093, b2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="a\\"b\\\\c";',
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-- ca --",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-- certificate --",
        "ssl.keystore.key": "-- key --",
        "ssl.key.password": SECRET,
    }
    config = KafkaConfig.from_mapping({**SASL, "sasl.mechanism": "PLAIN", "ssl.ca.location": ""})
    assert config.java_client_properties()["sasl.jaas.config"].startswith(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
    )
    with pytest.raises(ConfigurationError, match=r"/etc/nothing.pem of ssl.ca.location cannot be read"):
        KafkaConfig.from_mapping({**SASL, "ssl.ca.location": "/etc/nothing.pem"}).java_client_properties()


def test_secrets_are_not_shown() -> None:
    config = KafkaConfig.from_mapping({**SASL, "ssl.key.password": "key-password"})
    for text in (repr(config), str(config), config.model_dump_json(), repr(config.model_dump())):
        assert SECRET not in text
        assert "key-password" not in text
    assert config.without_secrets(f"login of alice with {SECRET} failed") == "login of alice with [hidden] failed"
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"bootstrap.servers": "broker"}, "Invalid url in bootstrap.servers: broker"),
        ({"bootstrap.servers": "b:9092,,c:9092"}, "Invalid url in bootstrap.servers"),
        ({"bootstrap.servers": "http://b:9092"}, "Invalid url in bootstrap.servers: http://b:9092"),
        ({"security.protocol": "TLS"}, "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "String must be one of: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.password": ""}, "SASL_SSL needs sasl.mechanism, sasl.username and sasl.password"),
        ({"sasl.mechanism": ""}, "SASL_SSL needs sasl.mechanism"),
        ({"security.protocol": "SSL"}, "security.protocol must be SASL_PLAINTEXT or SASL_SSL to log in, not SSL"),
        ({"sasl.password": 17}, r"Invalid value \[hidden\] for configuration sasl.password"),
        ({"sasl.jaas.config": "module required;"}, "sasl.jaas.config is not known to all clients.*sasl.username"),
        ({"ssl.truststore.location": "x.jks"}, "ssl.truststore.location is not known.*PEM"),
        ({"sasl.pasword": SECRET}, "Unknown configuration sasl.pasword.*Did you mean sasl.password?"),
    ],
)
def test_contradicting_settings(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refusal:
        KafkaConfig.from_mapping({**SASL, **change})
    assert SECRET not in str(refusal.value)


def test_the_settings_of_a_program(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{PATHS}kafka:\n  bootstrap.servers: [b1:9092, b2:9092]\n  security.protocol: SASL_SSL\n")
    environ = {"SHAREGROUP_SASL_MECHANISM": "PLAIN", "SHAREGROUP_SASL_PASSWORD": SECRET}
    settings = load_settings(file, environ, ["sasl.username=alice", "ssl.ca.location=ca.pem"])
    assert settings.kafka.client_properties() == {
        "bootstrap.servers": "b1:9092,b2:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert SECRET not in repr(settings)
    paths = [line.strip().replace(": ", "=") for line in PATHS.splitlines()[1:]]
    assert load_settings(None, {}, ["log.path=log", *paths]).kafka == KafkaConfig()


@pytest.mark.parametrize(
    "override",
    [f"sasl.password={SECRET}", f"sasl.pasword={SECRET}", f"sasl.jaas.config={SECRET}", f"ssl.key.passwort={SECRET}"],
)
def test_a_secret_in_a_wrong_flag_is_not_shown(tmp_path: Path, override: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"log.path: log\n{PATHS}")
    with pytest.raises(ConfigurationError, match=r"flag --set \S+=\[hidden\]") as refusal:
        load_settings(file, {}, [override])
    assert SECRET not in str(refusal.value)

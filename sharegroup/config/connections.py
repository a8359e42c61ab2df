"""Keys of librdkafka for a client's connections to Kafka: those that are passed to it, and other names of keys."""

from __future__ import annotations

from collections.abc import Mapping

ALIASES: Mapping[str, str] = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
}
"""librdkafka's name of a key → its name here; of a key that is set under both names the last one counts."""

_CONNECTION = (
    "api.version.fallback.ms",
    "api.version.request",
    "api.version.request.timeout.ms",
    "broker.address.family",
    "broker.address.ttl",
    "broker.version.fallback",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
)
_TLS = (
    "enable.ssl.certificate.verification",
    "https.ca.location",
    "https.ca.pem",
    "ssl.ca.certificate.stores",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.engine.id",
    "ssl.engine.location",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.providers",
    "ssl.sigalgs.list",
)
_OAUTH = (
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)
DIAGNOSTICS = (
    "debug",
    "log.connection.close",
    "log.thread.name",
    "log_level",
    "statistics.interval.ms",
)
"""Passed keys that only the process of the application needs: what they bring goes to it."""

PASSED = frozenset({*_CONNECTION, *_TLS, *_OAUTH, *DIAGNOSTICS, "enable.metrics.push", "enable.random.seed"})
"""Keys that are passed to each client of librdkafka as they are; librdkafka checks their values."""

OAUTHBEARER = "OAUTHBEARER"
"""The mechanism that only consumers log in by, with a callback or OIDC; Spark's readers have PLAIN and SCRAM."""

CALLBACKS: Mapping[str, str] = {
    "error_cb": "errors of connections: `error_cb(KafkaError)`, called by `poll`, commits and `close`, and by "
    "each call of an `AdminClient`.",
    "logger": "a `logging.Logger` for the lines of librdkafka, which its threads write; by default they are lines for "
    "debugging of the logger `sharegroup`.",
    "oauth_cb": "the token of a log-in by OAUTHBEARER: `oauth_cb(sasl.oauthbearer.config)` returns it with its end, in "
    "seconds since the epoch; called by threads of librdkafka.",
    "stats_cb": "statistics of each client of librdkafka as JSON, where `statistics.interval.ms` is set; called as "
    "`error_cb`.",
    "throttle_cb": "delays that a broker imposes: `throttle_cb(ThrottleEvent)`; called as `error_cb`.",
}
"""Keys whose values are Python objects → what they get."""

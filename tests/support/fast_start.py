"""JVMs of tests: they live for seconds, so a compiler that optimises would only take time."""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

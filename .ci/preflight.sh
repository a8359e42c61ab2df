#!/bin/sh
# Stops with one line, problem and remedy, when Python or Java is missing or too old.
# Plain shell, because it runs before there is a Python to rely on. Usage: preflight.sh PYTHON JAVA
set -u
python=$1
java=$2

stop() {
    echo "$*" >&2
    exit 1
}

python_version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    stop "Python is missing: '$python' does not run. Install Python 3.11, or name one: make PYTHON=/path/to/python3.11"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "Python is too old: '$python' is $python_version, needed is 3.11. Install it, or name one: make PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    stop "Python is incomplete: '$python' has no venv module. Install the package python$python_version-venv."

java_text=$("$java" -version 2>&1) ||
    stop "Java is missing: '$java' does not run. Install Java 17, or name one: make JAVA_HOME=/path/to/java17"
java_version=$(echo "$java_text" | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
java_major=${java_version%%[!0-9]*}
[ "${java_major:-0}" -ge 17 ] ||
    stop "Java is too old: '$java' is ${java_version:-of an unknown version}, needed is 17. Install it, or name one: make JAVA_HOME=/path/to/java17"

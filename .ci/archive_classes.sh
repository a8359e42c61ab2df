#!/bin/sh
# Lets a processor handle one message and archives the classes that its JVM loaded: later JVMs start in half the time.
# Nothing depends on it: a JVM that finds no archive that fits it loads its classes from the jars, as ever.
# Usage: archive_classes.sh ARCHIVE SPARK_HOME
set -u
archive=$1
spark_home=$2
work=$(mktemp -d)
trap 'rm -rf "$work" "$archive.new"' EXIT

# Classes are archived only where no folder with files is on the class path; Spark puts the one of its settings there.
mkdir "$work/conf"
if PATH="$PWD/.venv/bin:$PATH" SPARK_CONF_DIR="$work/conf" spark-submit \
    --properties-file "$spark_home/conf/spark-defaults.conf" \
    --conf spark.driver.defaultJavaOptions="-Xss8m -Xlog:disable -XX:ArchiveClassesAtExit=$PWD/$archive.new" \
    jobs/share_group_processor.py --config conf/local.yaml --once --wait 0 \
    --set log.path="$work/log.db" --set state.table.path="$work/state" --set checkpoint.path="$work/checkpoint" \
    >"$archive.log" 2>&1 && [ -s "$archive.new" ]; then
    mv -f "$archive.new" "$archive"
else
    echo "The classes could not be archived, so programs start more slowly; $archive.log says why." >&2
fi

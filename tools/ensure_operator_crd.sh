#!/usr/bin/env bash
# Fetch the Spark operator's custom resource definitions, as its Go module publishes them, for the tests of our manifests.
# They are not ours to commit; what is fetched is held against a checksum.
set -euo pipefail

MODULE=github.com/kubeflow/spark-operator/v2@v2.4.0
SUM=h1:Bo5rz5dlhqYEa7e/TLtUEVXDMNRotnVaQ4VLCyeLeOc=
FOLDER="$(dirname "$0")/../.venv/spark-operator-crd"

if [ "$(cat "$FOLDER/checksum" 2>/dev/null)" = "$SUM" ]; then
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "Installing Go from the system's packages, to fetch a module ..."
    "$(dirname "$0")/install_system_packages.sh" golang-go
fi
told() { sed -n "s/^\t\"$1\": \"\(.*\)\",*$/\1/p" <<<"$fetched"; }
# Outside of any module, and with nobody asked about the checksum: it is here.
if ! fetched=$(cd / && GONOSUMDB='*' GOFLAGS=-mod=mod timeout 120 go mod download -json "$MODULE"); then
    echo "The Spark operator's definitions cannot be fetched: the tests that need them will be left out." >&2
    exit 0
fi
if [ "$(told Sum)" != "$SUM" ]; then
    echo "$MODULE is not what it was: its checksum is $(told Sum), not $SUM" >&2
    exit 1
fi
mkdir -p "$FOLDER"
install -m 644 "$(told Dir)"/config/crd/bases/*.yaml "$FOLDER"
echo "$SUM" >"$FOLDER/checksum"

#!/usr/bin/env bash
# Make sure that there is a Java for Spark (17 or later).
set -euo pipefail

if command -v java >/dev/null || [ -n "${JAVA_HOME:-}" ]; then
    exit 0
fi
echo "Installing a Java runtime from the system's packages ..."
exec "$(dirname "$0")/install_system_packages.sh" openjdk-17-jre-headless

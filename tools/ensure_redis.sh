#!/usr/bin/env bash
# Make sure a redis-server or valkey-server is installed; `quintet up` checks its version.
set -euo pipefail

if command -v redis-server >/dev/null || command -v valkey-server >/dev/null; then
    exit 0
fi
echo "Installing redis-server from the system's packages (no service is started) ..."
here=$(dirname "$0")
"$here/install_system_packages.sh" redis-server || "$here/install_system_packages.sh" valkey-server

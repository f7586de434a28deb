#!/usr/bin/env bash
# Make sure that prometheus and promtool are installed: tests ask a real Prometheus.
set -euo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    exit 0
fi
echo "Installing prometheus from the system's packages (no service is started) ..."
exec "$(dirname "$0")/install_system_packages.sh" prometheus

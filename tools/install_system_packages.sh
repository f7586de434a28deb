#!/usr/bin/env bash
# Install Debian packages without starting (or enabling) any service they bring.
# Usage: tools/install_system_packages.sh PACKAGE...
set -euo pipefail

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

if ! command -v apt-get >/dev/null; then
    echo "Please install $* with this system's package manager, then run this again." >&2
    exit 1
fi

# While this file exists and answers 101, packages do not start their services. Some images have one already.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
fi

install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# Package lists may be missing or old on a fresh machine: fetch them only when the first attempt fails.
install "$@" || { as_root apt-get update -qq && install "$@"; }

# A package enables its service for the next boot; Quintet starts its own Redis and wants no other.
if [ -d /run/systemd/system ]; then
    for package in "$@"; do
        as_root systemctl disable "$package" >/dev/null 2>&1 || true
    done
fi

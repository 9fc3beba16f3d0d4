#!/bin/sh
# Answers the handshake without a manifest.
# No manifest, no version: protocol_version_mismatch, not handshake_failed.
read -r greeting
printf '%s\n' '{"type":"handshake"}'
while read -r rest; do :; done

#!/bin/sh
# A rune plugin without any SDK: read a line, write a line, twice; then wait for the end of input and leave.
set -u

read -r _handshake || exit 0
printf '%s\n' '{"type":"handshake","manifest":{"plugin_id":"example.machine_facts","plugin_version":"1.0.0","protocol_version":"rterm.plugin.v1","exposed_tools":["facts"],"capabilities":[]}}'

IFS= read -r request || exit 0
# The host writes compact JSON, so the two strings we need can be cut out; a script that needs more should use jq.
request_id=$(printf '%s\n' "$request" | sed -n 's/.*"request_id"[: ]*"\([^"]*\)".*/\1/p')
tool=$(printf '%s\n' "$request" | sed -n 's/.*"tool_name"[: ]*"\([^"]*\)".*/\1/p')

if [ "$tool" = facts ]; then
    printf '{"type":"response","request_id":"%s","status":"ok","output":{"system":"%s","architecture":"%s","kernel":"%s"}}\n' \
        "$request_id" "$(uname -s)" "$(uname -m)" "$(uname -r)"
else
    printf '{"type":"response","request_id":"%s","status":"error","error":{"code":"not_found","message":"there is no such tool"}}\n' \
        "$request_id"
fi

# Leaving before the host has read everything can look like a crash to it.
cat >/dev/null

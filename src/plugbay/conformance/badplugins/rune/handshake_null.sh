#!/bin/sh
# Answers the handshake with null.
# Not a JSON object: malformed_response, as the contract says and one known host does not.
read -r greeting
printf '%s\n' 'null'
while read -r rest; do :; done

#!/bin/sh
# Answers the handshake with a number.
# Not one JSON object with fields of the right types: malformed_response.
read -r greeting
printf '%s\n' '1'
while read -r rest; do :; done

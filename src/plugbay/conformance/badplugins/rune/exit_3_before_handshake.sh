#!/bin/sh
# Reads the handshake and exits with 3.
# The output ends without a byte: crashed, whatever the exit code.
read -r greeting
echo 'cannot go on' >&2
exit 3

#!/bin/sh
# Never answers the handshake.
# No handshake within the handshake timeout: timeout.
read -r greeting
exec /bin/sleep 600

"""Network access of a confined plugin: an HTTP proxy in the host that listens inside the plugin's empty namespace.

request   parses one request: head and body
decision  decides where a plugin may connect to; reads the server name from a TLS handshake
proxy     `Proxy`: accepts, resolves, connects, relays
listener  makes the listening socket inside the namespace
"""

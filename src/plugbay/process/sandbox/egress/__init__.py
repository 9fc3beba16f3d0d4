"""Network access of a confined plugin: a proxy in the host that listens inside the plugin's empty namespace.

request   parses one request to the proxy: head and body
dns       reads and answers questions for names
decision  decides where a plugin may connect to; reads the server name from a TLS handshake
proxy     `Proxy`: accepts, resolves, connects, relays
netlink   messages for the kernel that hand every connection inside to one socket
listener  makes the sockets inside the namespace
"""

"""The one way out of an empty network: an HTTP proxy in the host, with a door inside the plugin's namespace.

request     the head of a request, in the only reading it has
body        where the body of a request ends
hello       which name a TLS handshake asks for
verdict     where a plugin may connect to, and why not
resolve     the addresses of a name, and whether one is ours
proxy       `Proxy`: accepts, decides, connects, relays
door        a socket that listens inside the namespace and belongs to the host
"""

"""The operator's dashboard: pages at `/` that show the host's plugins and what they do, and let an operator act.

Server-rendered; a script of our own only keeps pages fresh. Whoever looks has a session, and a session has the rights
of the token it came from: what may be done is decided where the API decides it. Whatever a plugin says is shown as
text and as nothing else.
"""

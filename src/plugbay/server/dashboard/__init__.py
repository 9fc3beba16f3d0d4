"""The operator's dashboard: HTML pages at `/` that show the host's plugins and let an operator act on them.

Rendered on the server; our own script only refreshes pages. A session has the rights of the token it was created with,
checked by the same code as the API. Text from plugins is always escaped.
"""

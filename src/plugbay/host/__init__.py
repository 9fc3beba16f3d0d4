"""The host: finds plugins, binds them, supervises their children and calls them through one API."""

"""Files below the services: SQLite, folders filled by plugins, paths opened without links."""

"""Output of commands: printers, JSON, and views of calls, policies, schemas and frames."""

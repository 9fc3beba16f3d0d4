"""The call pipeline, streams, the call log, traces."""

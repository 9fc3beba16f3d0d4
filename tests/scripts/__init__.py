"""Tests of `scripts/`."""

"""Tests of the system call filters that `scripts/filters` builds."""

"""Tests of `plugbay.process`: real processes, conditions with a deadline, guards with a control."""

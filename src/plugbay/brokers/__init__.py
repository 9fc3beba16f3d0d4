"""Joins the event buses of several hosts through a message broker."""

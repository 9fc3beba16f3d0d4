"""Handlers of the pages, one module for each area.

`authentication` checks permissions; `views` makes the values of the templates.
"""

"""`KeysFooter`: Textual's line of keys, made anew only when it has other keys to show.

Owns that one decision. Which keys there are and what they do is the app's.
"""

from __future__ import annotations

from textual.screen import Screen
from textual.widgets import Footer


class KeysFooter(Footer):
    """Textual says that keys may have changed with every focus and every change of the layout: about thirty times while
    a plugin is chosen and its screen opened and left. Most of the time they are the same.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._keys: object = None
        """Those that are shown."""

    def bindings_changed(self, screen: Screen[object]) -> None:
        keys = [(binding, enabled) for _, binding, enabled, _ in screen.active_bindings.values() if binding.show]
        if keys == self._keys:
            return
        if screen.app.app_focus:  # without it the footer stays as it is
            self._keys = keys
        super().bindings_changed(screen)

"""`Guarded`: a struct whose `repr` leaves out the fields that hold secrets."""

from __future__ import annotations

from typing import ClassVar


class Guarded:
    """Base, before `msgspec.Struct`, of structs with secrets: no log line and no traceback shows them."""

    __slots__ = ()

    __struct_fields__: ClassVar[tuple[str, ...]]
    HIDDEN: ClassVar[tuple[str, ...]] = ()
    """The fields that are left out."""

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self.HIDDEN)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

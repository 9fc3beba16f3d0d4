"""Operations on a running host: stop, start, grant, reload, approve."""

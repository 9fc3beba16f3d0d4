"""What every word of a host in memory goes through: which export is meant, whether it may be asked, and the answer.

Owns the conversation with the plugin: one for as long as the host is used, or one for each call where the contract has
it so. What can be said is `testing`'s. For tests alone.
"""

from __future__ import annotations

from time import monotonic, sleep

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.sdk.contracts.mcp_names import tool_name
from plugbay.sdk.contracts.nexo_manifest import offered_name
from plugbay.sdk.contracts.vai_names import export_id
from plugbay.sdk.declaring import seconds
from plugbay.sdk.io.detect import MCP, NEXO, RUNE, VAI
from plugbay.sdk.testing.desk import Desk
from plugbay.sdk.testing.line import Pending
from plugbay.sdk.testing.session import Session
from plugbay.sdk.testing.spec import Terms, check, introduced, spec_of
from plugbay.wire.strict_json import Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Self

    from plugbay.model.operations import PluginOp
    from plugbay.model.spec import Export
    from plugbay.sdk.plugin import Plugin

SETTLE_SECONDS = 5.0
"""How long a plugin may take to deal with what it is told."""

LOOK_SECONDS = 0.002
"""Between two looks at a condition."""


class BegunCall:
    """A call that was made. `progress` is what was said before its answer, as it comes."""

    def __init__(self, pending: Pending, read: Callable[[Any], Any], plugin_id: str) -> None:
        self.progress = pending.progress
        self.cancel = pending.cancel
        self._pending = pending
        self._read = read
        self._plugin_id = plugin_id
        self._ends: list[Callable[[], None]] = []

    def then(self, end: Callable[[], None]) -> Self:
        """Do this when it is over, however it ends."""
        self._ends.append(end)
        return self

    def result(self) -> Any:
        """What came out of it; waits for that, and raises `CallFailed`."""
        try:
            finished = self._pending.finished()
            if finished.failure is not None:
                raise CallFailed(finished.failure.with_detail(self._plugin_id))
            return self._read(finished.value)
        finally:
            for end in self._ends:
                end()


class Core(Desk):
    """A host of one plugin, without words."""

    def __init__(
        self,
        plugin: Plugin,
        contract: str,
        *,
        config: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        grants: Iterable[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.plugin = plugin
        self.contract = contract
        self.spec = spec_of(plugin, contract, folder)
        self.terms = Terms(self.spec, grants, config, secrets)
        super().__init__(self.spec, self.terms)
        self.progress: list[Any] = []
        """What was said before the answer of the last call."""
        self._session: Session | None = None
        self._stderr: list[str] = []

    def __enter__(self) -> Self:
        if self.contract != RUNE:  # where every call has a process of its own
            self._session = self._begin_session()
            self.spec = introduced(self.spec, self._hello())
            self.settle()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                self._end_session(session)
        except CallFailed:
            if error is None:
                raise

    def _begin_session(self) -> Session:
        return Session(self.plugin, self.terms.machine(self.spec), self, self.spec.timeouts.handshake)

    @property
    def stderr(self) -> list[str]:
        """Lines on stderr while the plugin was served: logs and tracebacks, where the contract has no word for them."""
        return self._stderr + (self._session.stderr if self._session else [])

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until everything that the plugin was told is done; raises `CallFailed` for what failed of it."""
        if self._session is not None:
            self._session.settle(seconds)

    def until(self, condition: Callable[[], Any], seconds: float = SETTLE_SECONDS) -> None:
        """Wait until something is true that the plugin does by itself, in a thread or a task of its own."""
        deadline = monotonic() + seconds
        while not condition():
            if monotonic() > deadline:
                raise AssertionError(f"it did not come true within {seconds:g} s")
            sleep(LOOK_SECONDS)

    # Whatever a host can say.

    def ask(self, op: PluginOp, timeout: float | None = None) -> Any:
        """The answer to any operation, as the contract has it; raises `CallFailed`."""
        return self._result(self._begun(op, timeout))

    def tell(self, op: PluginOp) -> None:
        """Tell the plugin something, and wait until it has dealt with it."""
        if self._session is None:
            raise CallFailed(Failure(Code.UNAVAILABLE, f"there is nobody to tell something under {self.contract}"))
        refusal = self._session.line.tell(op)
        if refusal is not None:
            raise CallFailed(refusal)
        self.settle()

    def _begun(
        self, op: PluginOp, timeout: float | None, read: Callable[[Any], Any] = lambda value: value
    ) -> BegunCall:
        """A call that is under way; `read` makes of its answer what the caller gets."""
        session = self._session
        if session is None and self.contract != RUNE:
            raise CallFailed(Failure(Code.UNAVAILABLE, "the host is not running: with testing.host(…) as host:"))
        patience = self.spec.patience.get(type(op).__name__, self.spec.timeouts.call)
        allowed = patience if timeout is None else seconds("timeout", timeout)
        talk = session or self._begin_session()
        pending = Pending(talk.line, op, allowed, self.spec.timeouts.grace)
        call = BegunCall(pending, read, self.spec.id)
        return call if session is not None else call.then(lambda: self._end_session(talk))

    def _end_session(self, session: Session) -> None:
        try:
            session.close()
        finally:
            self._stderr += session.stderr

    def _result(self, call: BegunCall) -> Any:
        self.progress = call.progress
        return call.result()

    # What there is.

    def _export(self, name: str, *kinds: str) -> Export:
        """What the contract calls something that the author calls `name`."""
        called = {name.removeprefix(f"{self.spec.id}/"), self._spelt(name)}
        offered = [export for export in self.spec.exports if export.kind in kinds]
        for export in offered:
            if export.name in called:
                refusal = self.terms.missing(self.spec, export)
                if refusal is not None:
                    raise CallFailed(refusal)
                return export
        raise CallFailed(self._unknown(kinds[0], name, [export.name for export in offered]))

    def _spelt(self, name: str) -> str:
        if self.contract == NEXO:
            return offered_name(self.spec.id, name)
        if self.contract == MCP:
            return tool_name(name)
        return export_id(name) if self.contract == VAI else name

    def _unknown(self, kind: str, name: str, known: Sequence[str]) -> Failure:
        noun = kind.replace("_", " ")
        there = f"there is {', '.join(known)}" if known else f"it has none under {self.contract}"
        return Failure(Code.NOT_FOUND, f"{self.plugin.id} has no {noun} {name!r}: {there}", plugin=self.spec.id)

    def _refuse_misfit(self, export: Export, given: Any) -> None:
        learned = {tool["name"]: tool.get("input_schema") for tool in self._hello().get("tools", ())}
        schema = learned.get(export.name, export.input_schema)
        if schema is not None:
            check(schema, given, export.name, self.spec.id)

    def _hello(self) -> Mapping[str, Any]:
        return {} if self._session is None else self._session.line.hello

    def _json(self, value: Any) -> Any:
        """A value as it is on the wire: nobody shares it with the test."""
        try:
            return stdlib_codec().decode(stdlib_codec().encode(value))
        except Unencodable as error:
            raise CallFailed(Failure(Code.INVALID_INPUT, f"the input is not JSON: {error}")) from None

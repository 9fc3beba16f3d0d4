"""Exports traces, configured by the environment variables of OpenTelemetry.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 plugbay serve plugins/

Warns when traces cannot be sent, and flushes the last spans within a time limit. OpenTelemetry is imported only when
traces are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plugbay import __version__

if TYPE_CHECKING:
    import logging

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER, DISABLED = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"
PROTOCOL = "http/protobuf"
INSTALL = "pip install 'plugbay[otel]'"

HEADER_READER = "opentelemetry.util.re"
"""Logger that prints malformed headers, which may contain the collector's key."""

FLUSH_SECONDS = 5.0
"""Limit for sending the last spans; a collector that is down must not delay a restart."""

Warn = Callable[[str], object]


@contextmanager
def export_traces(environ: Mapping[str, str], warn: Warn) -> Iterator[Tracer | None]:
    """Yield a tracer, or None when no traces are sent; warns if the variables ask for traces that cannot be sent.

    `environ` must be the environment of this process: OpenTelemetry reads most variables itself.
    """
    problem = _problem(environ)
    if problem:
        warn(f"no traces are sent: {problem}")
    provider = None if problem or not _is_wanted(environ) else _provider(environ, warn)
    if provider is None:
        yield None
        return
    try:
        yield provider.get_tracer("plugbay", __version__)
    finally:
        _flush(provider, warn)


def _is_wanted(environ: Mapping[str, str]) -> bool:
    exporter = environ.get(EXPORTER, "").strip()
    if environ.get(DISABLED, "").strip().lower() == "true" or exporter == "none":
        return False
    return bool(exporter or _first_set(environ, ENDPOINTS)[1])


def _problem(environ: Mapping[str, str]) -> str | None:
    """The first unusable variable. Its value is not quoted: a URL may contain a password."""
    if not _is_wanted(environ):
        return None
    if environ.get(EXPORTER, "otlp").strip() not in ("", "otlp"):
        return f"{EXPORTER} must be otlp or none"
    name, protocol = _first_set(environ, PROTOCOLS)
    if protocol not in ("", PROTOCOL):
        return f"{name} must be {PROTOCOL}; a collector uses another port for it, usually 4318"
    name, endpoint = _first_set(environ, ENDPOINTS)
    if endpoint and not _is_url(endpoint):
        return f"{name} is not a URL such as http://127.0.0.1:4318"
    return None


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The first of these variables with a value; the last name and an empty string when none has one."""
    values = ((name, environ.get(name, "").strip()) for name in names)
    return next(((name, value) for name, value in values if value), (names[-1], ""))


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _provider(environ: Mapping[str, str], warn: Warn) -> TracerProvider | None:
    import logging

    logging.getLogger(HEADER_READER).addFilter(_hide_values)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create(_resource_attributes(environ)), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ImportError as error:
        warn(f"no traces are sent: the extra otel is not installed ({error.name}); {INSTALL}")
        return None
    except (ValueError, OSError) as error:  # a variable with an invalid number
        warn(f"no traces are sent: an OTEL_ variable cannot be used: {error}")
        return None
    return provider


def _resource_attributes(environ: Mapping[str, str]) -> dict[str, str]:
    """Version and service name, unless the operator sets a name."""
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {"service.version": __version__, **({} if named else {"service.name": "plugbay"})}


def _hide_values(record: logging.LogRecord) -> bool:
    record.msg, record.args = (
        "OTEL_EXPORTER_OTLP_HEADERS must be URL-encoded name=value,…; an invalid header is left out",
        (),
    )
    return True


def _flush(provider: TracerProvider, warn: Warn) -> None:
    """Send the last spans, on a thread because `shutdown` has no time limit."""
    import threading

    sending = threading.Thread(target=provider.shutdown, name="plugbay-traces", daemon=True)
    sending.start()
    sending.join(FLUSH_SECONDS)
    if sending.is_alive():
        warn(f"the last traces are lost: the collector did not accept them within {FLUSH_SECONDS:g} seconds")

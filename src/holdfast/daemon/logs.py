"""How the daemon logs: structured, one line per event, to stderr; for people on a terminal, as JSON elsewhere."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator

import structlog

from holdfast.daemon.config.config import Config
from holdfast.daemon.log_limits import LEFT_OUT, LogLimits

log = structlog.get_logger(__name__)

TELL_SECONDS = 60.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(config: Config) -> LogLimits:
    """Configure structlog, and send what libraries log the same way."""
    as_text = config.log_format == "console" or (config.log_format == "auto" and sys.stderr.isatty())
    level = _LEVELS[config.log_level]
    limits = LogLimits()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # The plain form: the usual one shows the variables of every function on the way, and keys are among them.
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    last: list[structlog.typing.Processor] = (
        [console] if as_text else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[shared[0], limits, *shared[1:], *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(limits)
    theirs = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=theirs, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    return limits


@contextlib.asynccontextmanager
async def telling_left_out(limits: LogLimits) -> AsyncIterator[None]:
    """Say now and then, and at the end, what was left out, where no further line says it."""
    task = asyncio.create_task(_tell_for_ever(limits))
    try:
        yield
    finally:
        task.cancel()
        _tell(limits)


async def _tell_for_ever(limits: LogLimits) -> None:
    while True:
        await asyncio.sleep(TELL_SECONDS)
        _tell(limits)


def _tell(limits: LogLimits) -> None:
    for kind, subject, count in limits.take_left_out():
        log.warning(LEFT_OUT, kind=kind, subject=subject or None, count=count)

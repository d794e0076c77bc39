"""How the daemon logs: structured, one line per event, to stderr; for people on a terminal, as JSON elsewhere."""

import logging
import sys

import structlog

from holdfast.daemon.config import Config

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(config: Config) -> None:
    """Configure structlog, and send what libraries log the same way."""
    as_text = config.log_format == "console" or (config.log_format == "auto" and sys.stderr.isatty())
    level = _LEVELS[config.log_level]
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
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    theirs = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=theirs, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)

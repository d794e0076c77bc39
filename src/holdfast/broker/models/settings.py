"""The settings of the model proxy, from the configuration."""

from dataclasses import dataclass, field

from holdfast.broker.models.asking.breaker import BreakerSettings


@dataclass(frozen=True, slots=True)
class ProxySettings:
    first_byte_seconds: float = 30.0
    """After which a streamed question goes to the next candidate."""
    answer_seconds: float = 600.0
    """The same, of the last one, and of answers that are not streamed."""
    idle_seconds: float = 300.0
    """How long a stream may say nothing."""
    alert_calls_per_minute: int = 120
    breaker: BreakerSettings = field(default_factory=BreakerSettings)

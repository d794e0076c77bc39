"""The metrics of calls to models. Labels are names of providers and our own codes, so they are few."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class ModelMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.under_way = Gauge("holdfast_model_calls_under_way", "Calls to models at the moment.", registry=registry)
        self.calls = Counter(
            "holdfast_model_calls_total",
            "Calls to providers, by the status of the answer; 0 where there was none.",
            ["provider", "status"],
            registry=registry,
        )
        self.tokens = Counter(
            "holdfast_model_tokens_total", "Tokens: input, cached, output.", ["provider", "kind"], registry=registry
        )
        self.cost = Counter(
            "holdfast_model_cost_usd_total", "Cost of calls, where a price is known.", ["provider"], registry=registry
        )
        self.first_byte = Histogram(
            "holdfast_model_first_byte_seconds",
            "From the request to the first byte of the provider's answer.",
            ["provider"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.refused = Counter(
            "holdfast_model_refused_total", "Calls that were not let through, by why.", ["why"], registry=registry
        )
        self.switches = Counter(
            "holdfast_model_switches_total", "Calls that went to another model.", ["provider"], registry=registry
        )
        self.broken = Counter(
            "holdfast_model_streams_broken_total", "Answers that broke off.", ["provider"], registry=registry
        )
        self.breaker_open = Gauge(
            "holdfast_model_breaker_open", "1 while a provider is left alone.", ["provider"], registry=registry
        )

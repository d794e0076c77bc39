"""What Prometheus may know about HTTP requests."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Counts by route template, never by path: a caller must not be able to make new time series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self._requests = Counter("holdfast_http_requests", "HTTP requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "holdfast_http_request_seconds", "Time to answer", ("method", "route"), registry=registry, buckets=BUCKETS
        )

        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def seen(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "OTHER"
        series = self._series.get((method, route, status))
        if series is None:  # looking one up by its labels costs more than counting; there are as many as time series
            series = self._requests.labels(method, route, str(status)), self._seconds.labels(method, route)
            self._series[(method, route, status)] = series
        requests, duration = series
        requests.inc()
        duration.observe(seconds)

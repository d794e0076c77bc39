"""What an operator watches: how many sessions there are, and what became of the others."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class SessionMetrics:
    """Counters of this daemon since it started; ``live`` is what it holds a link to now."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.live = Gauge("holdfast_sessions_live", "Sessions that this daemon holds a link to.", registry=registry)
        self.ended = Counter(
            "holdfast_sessions_ended_total", "Sessions that ended, by reason.", ["reason"], registry=registry
        )
        self.creates = Histogram(
            "holdfast_session_create_seconds",
            "From the request to a sandbox whose runner has dialled.",
            buckets=(0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
            registry=registry,
        )
        self.pool_ready = Gauge(
            "holdfast_pool_ready", "Sandboxes that wait to become sessions, by image.", ["image"], registry=registry
        )
        self.pool_creates = Counter(
            "holdfast_pool_creates_total",
            "Creates of an image that is pooled: hit took a ready sandbox, miss made one.",
            ["result"],
            registry=registry,
        )
        self.execs = Counter("holdfast_execs_total", "Commands that ended, by how.", ["outcome"], registry=registry)
        self.strays = Gauge(
            "holdfast_strays",
            "Sandboxes, snapshots and workspaces set aside because no row knows them.",
            registry=registry,
        )
        self.held = Gauge(
            "holdfast_sessions_frozen_for_room",
            "Sessions that are frozen until the disk of the state directory has room.",
            registry=registry,
        )
        self.disk_low = Gauge(
            "holdfast_disk_low", "1 while the disk of the state directory has less than disk_low_mb.", registry=registry
        )

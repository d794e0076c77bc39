"""One line of the report: a measurement, what it is compared with, and whether it is good enough."""

from dataclasses import dataclass
from enum import StrEnum

from bench.samples import Samples


class Verdict(StrEnum):
    PASS = "pass"
    MISS = "MISS"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a value."""

    bound: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.bound)}"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a figure is compared with, measured in the same run."""

    what: str
    samples: Samples


@dataclass(frozen=True, slots=True)
class Figure:
    """``target`` bounds the p50, ``ratio_target`` its ratio to the reference; without either it only informs."""

    benchmark: str
    what: str
    unit: str
    samples: Samples
    target: Target | None = None
    reference: Reference | None = None
    ratio_target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return self.samples.p50 / self.reference.samples.p50 if self.reference else None

    @property
    def verdict(self) -> Verdict:
        checks = []
        if self.target is not None:
            checks.append(self.target.holds(self.samples.p50))
        if self.ratio_target is not None and self.ratio is not None:
            checks.append(self.ratio_target.holds(self.ratio))
        if not checks:
            return Verdict.INFO
        return Verdict.PASS if all(checks) else Verdict.MISS

    @property
    def wanted(self) -> str:
        """The targets in words."""
        parts = []
        if self.target is not None:
            parts.append(f"{self.target} {self.unit}")
        if self.ratio_target is not None:
            parts.append(_times(self.ratio_target))
        return ", ".join(parts)

    def as_json(self) -> dict[str, object]:
        return {
            "benchmark": self.benchmark,
            "what": self.what,
            "unit": self.unit,
            "count": len(self.samples),
            "p50": self.samples.p50,
            "p99": self.samples.p99,
            "target": self.wanted or None,
            "reference": self.reference.what if self.reference else None,
            "reference_p50": self.reference.samples.p50 if self.reference else None,
            "ratio": self.ratio,
            "verdict": self.verdict.value,
        }


def number(value: float) -> str:
    """Three digits, as many as these measurements are good for."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(ratio: float) -> str:
    """A ratio as people say it: "1/24" for what is smaller, "2.4 x" for what is not."""
    return f"{ratio:.2f} x" if ratio >= 0.1 else f"1/{1 / ratio:.1f}"


def _times(target: Target) -> str:
    if target.bound < 1:
        return f"{'≥' if target.at_least else '≤'} 1/{1 / target.bound:.0f} of the reference"
    return f"{target} x the reference"

"""What calls to models have cost, as it looks on the wire."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from holdfast.api.wire.models import From, Output
from holdfast.records.usage import UsageBy, UsageLine, UsageSum


class UsageOut(Output, record=UsageSum):
    """Calls to models, summed up. Those without a known price cost nothing here."""

    calls: int
    input_tokens: int = Field(description="Cached ones included")
    output_tokens: int
    cached_tokens: int
    cost_usd: float


def _cents(cost: float) -> float:
    return round(cost, 6)


class UsageLineOut(UsageOut, record=UsageLine, inner="sum"):
    cost_usd: Annotated[float, From(by=_cents)]
    what: str = Field(description="A thread's key, a model's id, a day (UTC) or an owner, as asked for")
    owner: str | None = Field(description="Of a thread")


class UsageReport(BaseModel):
    by: UsageBy
    lines: list[UsageLineOut]
    total: UsageOut = Field(description="Of all, also of what found no place among the lines")

    @classmethod
    def of(cls, by: UsageBy, lines: Sequence[UsageLine], total: UsageSum) -> "UsageReport":
        return cls.model_construct(by=by, lines=[UsageLineOut.of(line) for line in lines], total=UsageOut.of(total))

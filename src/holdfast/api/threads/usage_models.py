"""What calls to models have cost, as it looks on the wire."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from holdfast.api.wire.output import Output
from holdfast.store.usage import UsageBy, UsageLine
from holdfast.store.usage_rows import UsageSum


class UsageOut(Output, record=UsageSum):
    """Calls to models, summed up. Those without a known price cost nothing here."""

    calls: int
    input_tokens: int = Field(description="Cached ones included")
    output_tokens: int
    cached_tokens: int
    cost_usd: float


class UsageLineOut(UsageOut):
    what: str = Field(description="A thread's key, a model's id, a day (UTC) or an owner, as asked for")
    owner: str | None = Field(description="Of a thread")

    @classmethod
    def line(cls, line: UsageLine) -> "UsageLineOut":
        return cls.model_construct(what=line.what, owner=line.owner, **line.sum.to_json())  # type: ignore[arg-type]  # numbers, all


class UsageReport(BaseModel):
    by: UsageBy
    lines: list[UsageLineOut]
    total: UsageOut = Field(description="Of all, also of what found no place among the lines")

    @classmethod
    def of(cls, by: UsageBy, lines: Sequence[UsageLine], total: UsageSum) -> "UsageReport":
        return cls.model_construct(by=by, lines=[UsageLineOut.line(line) for line in lines], total=UsageOut.of(total))

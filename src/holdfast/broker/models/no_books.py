"""Books of a daemon without threads: every sandbox is nobody's."""

from collections.abc import Sequence

from holdfast.broker.accounts import Account, Call, Spent, Standing
from holdfast.broker.models.limits.holds import Hold
from holdfast.vocabulary.turn_events import TurnEvent


class NoBooks:
    async def account(self, _session_id: str, _channel_tag: str | None, /) -> Account | None:
        return None

    async def spent(self, _account: Account, /) -> Spent:
        return Spent(0.0, 0.0)

    async def hold(self, _account: Account, _hold: Hold, /) -> Standing:
        return Standing.HELD

    async def release(self, _hold: Hold, /) -> None: ...

    async def begin(self, _account: Account, _call: Call, /) -> str:
        return ""

    async def advance(self, _call_id: str, _call: Call, /) -> None: ...

    async def record(
        self, _account: Account, _call: Call, _call_id: str | None = None, _hold: Hold | None = None, /
    ) -> None: ...

    async def tell(self, _account: Account, _events: Sequence[TurnEvent], /) -> None: ...

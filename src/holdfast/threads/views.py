"""Rows of the store as owners may see them."""

from collections.abc import Mapping, Sequence

from holdfast.records.threads import (
    ChannelRow,
    ThreadFileRow,
    ThreadRow,
    TurnRow,
)
from holdfast.store.usage_rows import UsageSum
from holdfast.threads import options
from holdfast.threads.types import ThreadView, TurnView


def thread_view(row: ThreadRow, channels: Sequence[ChannelRow], usage: UsageSum | None) -> ThreadView:
    return ThreadView(
        id=row.id,
        key=row.key,
        owner=row.owner,
        platform=row.platform,
        agent=row.agent,
        session_id=row.session_id,
        sleep_state=row.sleep_state,
        channels=channels,
        options=options.from_json(row.settings),
        preview_url=row.preview_url,
        resume_failures=row.resume_failures,
        last_error=row.last_error,
        last_seq=row.last_seq,
        created_at=row.created_at,
        last_activity_at=row.last_activity_at,
        usage=usage,
        channel=max(channels, key=lambda one: one.updated_at).channel if channels else None,
        resumed_at=row.resumed_at,
        destroyed_at=row.destroyed_at,
        healthy_at=row.healthy_at,
    )


def turn_view(row: TurnRow, files: Mapping[str, ThreadFileRow], usage: UsageSum) -> TurnView:
    return TurnView(
        id=row.id,
        channel=row.channel,
        state=row.state,
        prompt=row.prompt,
        accepted=row.accepted,
        attempts=row.attempts,
        reason=row.stop_reason,
        error=row.error,
        artifacts=[files[one] for one in row.artifacts if one in files],
        answer=row.answer,
        reverted=row.reverted,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        usage=usage,
    )

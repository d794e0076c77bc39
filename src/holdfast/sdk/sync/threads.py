"""Threads for code that is not async."""

from collections.abc import Iterator

from holdfast.sdk.sync.base import Shown, Sync, forward, forward_iterator, forward_object
from holdfast.sdk.sync.portal import iterate
from holdfast.sdk.threads.results import MessageInfo, ThreadEvent
from holdfast.sdk.threads.thread import Reply, Thread


class SyncReply(Sync[Reply]):
    """A message: iterate over the events of its turn, or take its ``result()``. Nothing is sent before."""

    result = forward(Reply.result)
    abort = forward(Reply.abort)

    def __iter__(self) -> Iterator[ThreadEvent]:
        return iterate(self._portal, aiter(self._inner))

    def sent(self) -> "SyncReply":
        """Send it, and do not wait for more than that it is stored."""
        self._portal.call(self._inner.sent)
        return self

    message = Shown[MessageInfo]()
    turn_id = Shown[str | None]()


class SyncThread(Sync[Thread]):
    """One conversation, by its key."""

    send = forward_object(SyncReply, Thread.send)
    resolve = forward(Thread.resolve)
    reply = forward_object(SyncReply, Thread.reply)
    abort = forward(Thread.abort)
    cancel = forward(Thread.cancel)
    answer = forward(Thread.answer)
    revert = forward(Thread.revert)
    command = forward_object(SyncReply, Thread.command)
    review = forward_object(SyncReply, Thread.review)
    new_session = forward(Thread.new_session)
    use_model = forward(Thread.use_model)
    diff = forward(Thread.diff)
    commands = forward(Thread.commands)
    models = forward(Thread.models)
    info = forward(Thread.info)
    events = forward_iterator(Thread.events)
    transcript = forward(Thread.transcript)
    messages = forward(Thread.messages)
    message = forward(Thread.message)
    turn = forward(Thread.turn)
    upload = forward(Thread.upload)
    files = forward(Thread.files)
    stream = forward_iterator(Thread.stream)
    read = forward(Thread.read)
    download = forward(Thread.download)
    pause = forward(Thread.pause)
    delete = forward(Thread.delete)

    key = Shown[str]()

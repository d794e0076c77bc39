"""Why an image cannot be removed: the sessions, threads and snapshots that need it."""

from holdfast.images.names import canonical
from holdfast.records.machine import LIVE
from holdfast.store import Store

_NAMED = 5


async def describe_users(store: Store, node: str, image: str) -> str:
    """Say what uses the image on this node, in a sentence with the remedy."""
    name = canonical(image)
    sessions = [row.id for row in await store.sessions.by_status(LIVE, node=node) if canonical(row.image) == name]
    keys = {row.session_id: row.key for row in await store.threads.on_node(node)} if sessions else {}
    snapshots = [row.name for row in await store.snapshots.all(node=node) if canonical(row.image) == name]
    users = [f"the sandbox {id} of the thread {keys[id]}" if id in keys else f"the session {id}" for id in sessions]
    users += [f"the snapshot {one}" for one in snapshots]
    if not users:  # gone since it was refused
        return f"image {image!r} was in use until now; try again"
    named = ", ".join(users[:_NAMED]) + (f" and {len(users) - _NAMED} more" if len(users) > _NAMED else "")
    return f"image {image!r} is used by {named}; remove {'it' if len(users) == 1 else 'them'} first"

"""The client library: ``Client`` for async code, ``SyncClient`` for the rest.

::

    async with Client() as client:                      # finds the daemon on this machine by itself
        async with client.create_session() as session:  # destroyed at the end of the block
            result = await session.exec("cd /tmp && echo $PWD")
            print(result.exit_code, result.stdout)

Failures are raised as the classes of ``holdfast.errors``, the same ones that the daemon uses.
"""

from holdfast.sdk.admin.images import Images
from holdfast.sdk.admin.keys import Keys
from holdfast.sdk.client import Client
from holdfast.sdk.connection.transport import request_id
from holdfast.sdk.sessions.copies import SnapshotInfo, Snapshots, StrayInfo, Strays, WorkspaceInfo, Workspaces
from holdfast.sdk.sessions.events import SessionEvent
from holdfast.sdk.sessions.exec_stream import ExecStream
from holdfast.sdk.sessions.file_results import FileChange, FileEntry, FileLink, FolderCopy
from holdfast.sdk.sessions.files import Files
from holdfast.sdk.sessions.gateway import LinkInfo, Links, NewLink, TunnelInfo, Tunnels
from holdfast.sdk.sessions.output import Chunk
from holdfast.sdk.sessions.ports import Forward, Listening
from holdfast.sdk.sessions.processes import Process, ProcessInfo
from holdfast.sdk.sessions.results import (
    CommandFailed,
    ExecEnd,
    ExecResult,
    ImageInfo,
    KeyInfo,
    Limits,
    NewKey,
    SessionInfo,
    SessionStats,
)
from holdfast.sdk.sessions.services import ServiceInfo, Services
from holdfast.sdk.sessions.session import PendingSession, Session
from holdfast.sdk.sessions.terminal import Terminal
from holdfast.sdk.sync.client import SyncClient, SyncFiles, SyncImages, SyncKeys, SyncSession
from holdfast.sdk.sync.threads import SyncReply, SyncThread
from holdfast.sdk.threads.results import (
    Diff,
    Line,
    MessageInfo,
    ModelInfo,
    Models,
    Resolved,
    SlashCommand,
    ThreadEvent,
    ThreadFile,
    ThreadInfo,
    TurnInfo,
    TurnResult,
    Usage,
    UsageLine,
    UsageReport,
)
from holdfast.sdk.threads.thread import Reply, Thread
from holdfast.sdk.webhook import verify_webhook
from holdfast.vocabulary import thread_keys

__all__ = [
    "Chunk",
    "Client",
    "CommandFailed",
    "Diff",
    "ExecEnd",
    "ExecResult",
    "ExecStream",
    "FileChange",
    "FileEntry",
    "FileLink",
    "Files",
    "FolderCopy",
    "Forward",
    "ImageInfo",
    "Images",
    "KeyInfo",
    "Keys",
    "Limits",
    "Line",
    "LinkInfo",
    "Links",
    "Listening",
    "MessageInfo",
    "ModelInfo",
    "Models",
    "NewKey",
    "NewLink",
    "PendingSession",
    "Process",
    "ProcessInfo",
    "Reply",
    "Resolved",
    "ServiceInfo",
    "Services",
    "Session",
    "SessionEvent",
    "SessionInfo",
    "SessionStats",
    "SlashCommand",
    "SnapshotInfo",
    "Snapshots",
    "StrayInfo",
    "Strays",
    "SyncClient",
    "SyncFiles",
    "SyncImages",
    "SyncKeys",
    "SyncReply",
    "SyncSession",
    "SyncThread",
    "Terminal",
    "Thread",
    "ThreadEvent",
    "ThreadFile",
    "ThreadInfo",
    "TunnelInfo",
    "Tunnels",
    "TurnInfo",
    "TurnResult",
    "Usage",
    "UsageLine",
    "UsageReport",
    "WorkspaceInfo",
    "Workspaces",
    "request_id",
    "thread_keys",
    "verify_webhook",
]

"""The client library: ``Client`` for async code, ``SyncClient`` for the rest.

::

    async with Client() as client:                      # finds the daemon on this machine by itself
        async with client.create_session() as session:  # destroyed at the end of the block
            result = await session.exec("cd /tmp && echo $PWD")
            print(result.exit_code, result.stdout)

Failures are raised as the classes of ``holdfast.errors``, the same ones that the daemon uses.
"""

from holdfast.sdk.client import Client
from holdfast.sdk.file_results import FileChange, FileEntry, FileLink, FolderCopy
from holdfast.sdk.files import Files
from holdfast.sdk.images import Images
from holdfast.sdk.results import CommandFailed, ExecResult, ImageInfo, Limits, SessionInfo
from holdfast.sdk.session import PendingSession, Session
from holdfast.sdk.sync import SyncClient, SyncFiles, SyncImages, SyncSession
from holdfast.sdk.transport import request_id

__all__ = [
    "Client",
    "CommandFailed",
    "ExecResult",
    "FileChange",
    "FileEntry",
    "FileLink",
    "Files",
    "FolderCopy",
    "ImageInfo",
    "Images",
    "Limits",
    "PendingSession",
    "Session",
    "SessionInfo",
    "SyncClient",
    "SyncFiles",
    "SyncImages",
    "SyncSession",
    "request_id",
]

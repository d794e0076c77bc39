"""A folder as one stream of bytes, and back: tar, written and read so that nothing in it reaches outside the folder.

Standard library only, and imported late: in the sandbox a forked worker runs it, in the SDK a copy of a folder does.

Read first: ``pack``, ``unpack``. The runner, the SDK and everything above them may import this package.
"""

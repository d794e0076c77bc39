"""A folder as one stream of bytes, and back: tar, written and read so that nothing in it reaches outside the folder.

Standard library only, and imported late: the sandbox's end runs it in a forked worker, the SDK when a folder is copied.
"""

"""Importing images: archives, layers and directories of strangers, unpacked into a tree that nothing leaves.

Read first: ``importer``, ``tree`` (where untrusted names are written), ``layers`` (Docker and OCI archives).
``images/store`` imports this package.
"""

"""What is done inside a running sandbox, over its link: commands, processes, files, ports, and what they use.

Read first: ``calls`` (commands and files over the link), ``processes``, ``files``.
The session service imports this package, and the API its types.
"""

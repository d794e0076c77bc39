"""What is done inside a running sandbox, over its link: commands, processes, files, ports, and what they use.

Read first: ``using`` (how a session is found and counted as in use), ``execs``, ``processes``, ``files``.
The session service imports this package, and the API its types.
"""

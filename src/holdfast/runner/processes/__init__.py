"""Programs in the background of a session: started with pipes or a terminal, written to, signalled, kept at their end.

Read first: ``table`` (the calls of the protocol), ``process`` (one program), ``children`` (/proc and fork).
Only the runner imports this package. Standard library only.
"""

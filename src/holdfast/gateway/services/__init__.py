"""Services of sessions: programs that an image declares, and that run while somebody uses them.

``engine`` is what the API and the gateway call. It starts a service as a process of the session, waits until it
answers (``probe``), follows it to its end, and stops it when nobody has been connected for a while. ``states`` is what
a service can go through, as data.

The process has an id that follows from the session and the service's name. So there is never a second one, and the next
daemon finds it again by looking at the session's processes: nothing is written down anywhere.
"""

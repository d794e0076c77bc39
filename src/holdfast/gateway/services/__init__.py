"""Services of sessions: programs that an image declares, and that run while somebody uses them.

Read first: ``engine``, which the API and the gateway call, and which finds out what runs in a session that is awake;
``life``, which starts a service as a process of the session, waits until it answers (``probe``), follows it to its end
and stops it; ``states``, what a service can go through, as data.

The process has an id that follows from the session and the service's name. So there is never a second one, and the next
daemon finds it again by looking at the session's processes: nothing is written down anywhere.
"""

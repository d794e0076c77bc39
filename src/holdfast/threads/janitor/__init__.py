"""Once a minute: idle threads go to sleep, idle agents are stopped, and what was left half done is finished.

Read first: ``janitor``, ``idle_agents``. Only the thread service imports this package.
"""

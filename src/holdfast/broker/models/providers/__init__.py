"""Model providers: which there are, how each is reached, what may be asked of them, and how they word errors.

Read first: ``catalogue``, ``known``, ``http``. The model proxy and the daemon's configuration import this package.
"""

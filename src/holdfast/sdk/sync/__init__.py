"""The same client for code that is not async: every call is handed to a loop in a thread.

Read first: ``client``, ``base``. Only the SDK imports this package; users import ``holdfast.sdk``.
"""

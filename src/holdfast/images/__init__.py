"""Images: the root file systems that sessions start from.

Read first: ``store`` (list, resolve, import, remove), ``layout`` (what each image must have), ``builds/recipe``.
Drivers and everything above them may import this package; it does not know the database.
"""

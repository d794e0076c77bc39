"""Images: the root file systems that sessions start from. ``store`` is the way in; the rest are its parts."""

"""Coding agents for sandboxes of the image ``host``: Node.js and npm packages, pinned by the files in this folder."""

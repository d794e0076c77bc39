"""Holdfast: a durable, isolated Linux sandbox for every conversation."""

__version__ = "0.1.0"

"""What runs INSIDE the sandbox: the standard library only, and of it only what the runtime bundle has.

So no ``dataclasses``, ``typing``, ``re``, ``json``, ``signal`` or ``subprocess`` at run time.
"""

"""The program that runs INSIDE the sandbox. It uses only modules of the standard library that the runtime bundle has.

So no ``dataclasses``, ``typing``, ``re``, ``json``, ``signal`` or ``subprocess`` at run time.
"""

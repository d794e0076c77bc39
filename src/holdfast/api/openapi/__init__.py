"""What the OpenAPI document says beyond the code: descriptions of fields, readable operation ids, examples.

Read first: ``described``, ``examples``. ``api/app`` imports this package.
"""

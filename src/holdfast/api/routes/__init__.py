"""The routes, one file per noun. Each file has a ``router`` function that binds its routes to a service."""

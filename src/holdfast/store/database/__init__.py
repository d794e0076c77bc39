"""The database itself: engines, transactions, locks, migrations, and foreign errors translated into ours.

Read first: ``database`` (one unit of work), ``engine`` (SQLite and Postgres), ``foreign`` (the seam for errors).
Only the store imports this package.
"""

"""Opening a connection: the code that runs once per connection, for every client.

opening.py and sync/client.py begin here; reaching.py gets both of them to a connected socket. Modules that few
connections need are imported late, inside functions: those about proxies, redirects, .netrc files and logs. Some take
longer to import than the rest of wsfast.
"""

"""Opening a connection: what runs once per connection, for all faces. opening.py and net/blocking.py are its heads."""

"""Opening a connection: what runs once per connection, for all faces. opening.py is its head."""

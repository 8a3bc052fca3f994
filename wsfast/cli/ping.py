def add_to(commands): pass

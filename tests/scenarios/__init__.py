"""Programs made at random, which do everything at every moment."""

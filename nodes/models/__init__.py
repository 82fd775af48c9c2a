"""Models: how one is named, resolved and called."""

"""What is raised where a file gives no text."""


class UnreadableError(Exception):
    """A document that is left out of the index. The message is the reason, for people."""

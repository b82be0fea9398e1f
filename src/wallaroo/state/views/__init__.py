"""Views: a host's indexed copies of committed state."""

"""Built stages, their readers and their sampling."""

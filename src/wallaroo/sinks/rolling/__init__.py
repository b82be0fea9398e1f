"""Output in files of a size that others like to read, on disks and in object stores."""

"""Output in files of convenient size, on disks or in object stores."""

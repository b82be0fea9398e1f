"""Many files as one log: read in place and side by side, on disks and in object stores."""

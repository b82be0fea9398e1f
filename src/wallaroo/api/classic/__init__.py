"""The API of 2017, built of classes, as a thin layer over today's."""

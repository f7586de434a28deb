"""Duties that any core carries out, any number of cores at once. One duty a file."""

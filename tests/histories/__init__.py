"""Recorded logs of each format version, and the recorded schema of the events in them."""

"""A log copied so that it can be given away: with pseudonyms for its keys and names, if wished."""

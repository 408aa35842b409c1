"""What attention over a cache of blocks is made of: the cache, and the order in which segments are computed."""

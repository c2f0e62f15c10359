"""Programs in shards: the analysis, the program and the state of a shard, the committed epochs."""

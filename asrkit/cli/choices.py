"""Names and limits for the options of asrkit decode, copied from the modules that own them."""

ENGINES = ("processes", "ray")  # transcription.workers.STARTERS
LEASE_SECONDS = 60.0  # transcription.shards

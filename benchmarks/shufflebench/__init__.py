"""ShuffleBench: records that a thousand consumers want, shuffled to their state."""

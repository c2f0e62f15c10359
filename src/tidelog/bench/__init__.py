"""`tidelog bench`: named suites of measurements, ours beside those of other engines."""

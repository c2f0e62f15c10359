"""`tidelog bench`: suites of measurements, of Tidelog and of other engines."""

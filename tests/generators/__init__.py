"""Random programs and data that the tests share."""

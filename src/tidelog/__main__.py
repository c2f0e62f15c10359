"""`python -m tidelog` is the command line."""

from tidelog.cli.main import main

main()

"""Transactions in, changes out: the database that programs hold on to."""

"""The example job: a share group drains a year of flights, and accounts for every one of them."""

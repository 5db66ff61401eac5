"""Faults that are planted into the package one at a time, to see that the tests notice each of them."""

"""Faults that are planted into the package one at a time, to check that the tests notice each of them."""

"""The commands for click: the parameters of each, and what it does with a shadow."""

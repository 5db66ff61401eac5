"""The commands, as click knows them: what each takes, and what it does with a shadow."""

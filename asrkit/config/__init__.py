"""The schema of settings, and reading settings from YAML.

`running` has what running a model reads. `schema` has a whole configuration, whose section `model`
checks the options of a network's parts with torch.
"""

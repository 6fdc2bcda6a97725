"""The commands: each file has the options, and the work with its imports inside.

Torch takes seconds to import. So a file imports it in the functions that use it, and --help is
quick. A missing extra is an error of one line.
"""

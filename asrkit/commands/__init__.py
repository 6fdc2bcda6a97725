"""The work of each command, which needs torch. Its options are in asrkit/NAME.py, without torch.

A command asrkit/NAME.py calls `Parser.run`, which parses the arguments, imports the module here and
calls its function. So --help is quick, and a missing extra is an error of one line.
"""

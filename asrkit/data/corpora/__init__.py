"""Readers of corpora in other forms (`asrkit data import`).

A reader turns a folder or file into `Entry` objects. `measure` reads the headers of their audio.
`asrkit.data.splits` divides and writes them. `registry` has the readers by kind.
"""

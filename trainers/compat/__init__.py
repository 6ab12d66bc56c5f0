"""What we use of torch, torchvision and pyautoattack beyond their documented interfaces: a file for each package.

`CONTRIBUTING.md` lists it all; `tests/trainers/test_compat.py` fails first when a package changes.
"""

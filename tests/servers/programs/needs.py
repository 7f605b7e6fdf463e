"""What a distribution requires, but for some names, as lines for pip: needs.py DISTRIBUTION NAME..."""

import sys
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

for requirement in map(Requirement, requires(sys.argv[1]) or ()):
    if requirement.name.lower() not in sys.argv[2:] and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
        requirement.marker = None
        print(requirement)

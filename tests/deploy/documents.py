"""The YAML documents of standard input as a JSON list."""

import json
import sys

import yaml

json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)

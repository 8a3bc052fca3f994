"""python setup.py build_ext --inplace"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import wsfast

# Where `cimport wsfast` finds its .pxd files, however wsfast was installed, and the C compiler its headers.
package = Path(wsfast.__file__).parent

setup(
    name="bot",
    ext_modules=cythonize(
        [Extension("bot", ["bot.pyx"], include_dirs=[str(package / "core")])],
        include_path=[str(package.parent)],
        language_level=3,
    ),
)

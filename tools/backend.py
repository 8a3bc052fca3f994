"""The build backend that pyproject.toml names: setuptools', behind a look at what the machine must have.

pip asks for requirements before it installs any. So it says at once if cargo, a compiler or Python's headers are
missing.
"""

import sys

import toolchain

REQUIRES = ["setuptools>=77", "cython>=3.1,<4", "cffi>=1.16"]


def get_requires_for_build_sdist(config_settings=None):
    return REQUIRES


def get_requires_for_build_wheel(config_settings=None):
    if problem := toolchain.missing():
        sys.exit(problem)
    return REQUIRES


get_requires_for_build_editable = get_requires_for_build_wheel


def of_setuptools(name):
    """A hook of setuptools, which is not installed yet when this module is imported."""

    def hook(*args, **options):
        from setuptools import build_meta

        return getattr(build_meta, name)(*args, **options)

    return hook


prepare_metadata_for_build_wheel = of_setuptools("prepare_metadata_for_build_wheel")
prepare_metadata_for_build_editable = of_setuptools("prepare_metadata_for_build_editable")
build_sdist = of_setuptools("build_sdist")
build_wheel = of_setuptools("build_wheel")
build_editable = of_setuptools("build_editable")

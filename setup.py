"""Builds the CPU kernels along with the package: a library for every instruction set that the compiler knows.

What it cannot build is left out, and the installation succeeds. Everything else is in pyproject.toml. The compiler is
g++, or $CXX.
"""

import os
import runpy
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

RECIPE = "transduce/kernels/build.py"
PACKAGE = "transduce.kernels.lib"
BUILD = runpy.run_path(RECIPE)  # by its path: importing it would import the package, which is not installed yet


class BuildKernels(build_ext):
    """Compiles each level as build.py says, side by side."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = os.cpu_count()

    def get_ext_filename(self, fullname: str) -> str:
        """A path without Python's ABI, which the kernels do not use."""
        return f"{fullname.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        level = ext.name.removeprefix(f"{PACKAGE}.")
        beside_sources = Path(self.get_ext_filename(ext.name))
        beside_sources.parent.mkdir(exist_ok=True)  # where setuptools copies to, and makes no folder for
        beside_sources.unlink(missing_ok=True)  # what an earlier build left
        try:
            BUILD["compile_library"](level, Path(self.get_ext_fullpath(ext.name)), os.environ.get("CXX", "g++"))
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(str(error)) from error


class Wheel(bdist_wheel):
    """A wheel for this platform and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            f"{PACKAGE}.{level}",
            sources=[*map(str, BUILD["sources"]())],
            depends=[RECIPE, *map(str, BUILD["headers"]())],
            optional=True,
        )
        for level in BUILD["levels"]()
    ],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
)

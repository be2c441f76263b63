#!/usr/bin/env bash
# Installs Transduce for serving, in the versions of constraints.txt: what the image is made with, for plain machines too.
#
#   deploy/install.sh PREFIX [EXTRA,...]    PREFIX: a virtual environment, made unless it is there
#   PYTHON=/path/to/python                  the interpreter to make it with; otherwise python3
#   TORCH_INDEX=URL                         where torch comes from beside pip's own index; otherwise PyTorch's CPU builds
#
# It needs g++ (or $CXX), since a server without the CPU kernels is a slow one; what it makes does not.
set -euo pipefail

die() { printf 'deploy/install.sh: %s\n' "$*" >&2; exit 1; }

(($# >= 1)) || die "say where to: deploy/install.sh PREFIX"
prefix=$(realpath -m "$1")
extras=${2:-}
python=$prefix/bin/python
cd "$(dirname "${BASH_SOURCE[0]}")/.."

install() { "$python" -m pip install --disable-pip-version-check --constraint constraints.txt "$@"; }

[[ -x $python ]] || "${PYTHON:-python3}" -m venv "$prefix"

# torch by its exact version: the CPU build then outranks the same version's CUDA build, which is ten times as large.
install --extra-index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" \
    "$(grep '^torch==' constraints.txt)" setuptools
install --no-build-isolation ".${extras:+[$extras]}"

installed=$("$python" -I -c 'from importlib.util import find_spec; print(*find_spec("transduce").submodule_search_locations)')
[[ -e $installed/kernels/lib/portable.so ]] ||
    die "the CPU kernels do not compile: is g++ here? \`$python setup.py build_ext --inplace\` shows why"
"$prefix/bin/transduce" --version

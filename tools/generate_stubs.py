"""Generate the Python stubs of `proto/` into a folder: `python tools/generate_stubs.py [FOLDER]` (default proto/gen).

Deterministic: protoc and its plugins come pinned with the development dependencies and see the files in name order.
Stubs in the folder whose proto is gone are removed.
"""

import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PACKAGE = Path("quintet", "v1")


def generate(folder: Path) -> int:
    """Write every stub under `folder`; returns protoc's exit code, 0 when all is well."""
    with tempfile.TemporaryDirectory() as fresh:
        code = _run_protoc(Path(fresh))
        if code == 0:
            _replace(folder / PACKAGE, Path(fresh) / PACKAGE)
    return code


def _run_protoc(out: Path) -> int:
    plugins = Path(sys.executable).parent
    arguments = ["protoc", f"--proto_path={PROTO}", f"--proto_path={files('grpc_tools') / '_proto'}"]
    for plugin in ("mypy", "mypy_grpc"):
        arguments += [f"--plugin=protoc-gen-{plugin}={plugins / f'protoc-gen-{plugin}'}", f"--{plugin}_out=quiet:{out}"]
    arguments += [f"--python_out={out}", f"--grpc_python_out={out}"]
    arguments += [str(path) for path in sorted((PROTO / PACKAGE).glob("*.proto"))]
    return int(protoc.main(arguments))


def _replace(old: Path, fresh: Path) -> None:
    """Make `old` hold what `fresh` holds, file by file, so that a process importing them meanwhile finds them."""
    old.mkdir(parents=True, exist_ok=True)
    for path in fresh.iterdir():
        shutil.copy(path, old)
    for path in old.iterdir():
        if path.is_file() and not (fresh / path.name).exists():
            path.unlink()


if __name__ == "__main__":
    sys.exit(generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO / "gen"))

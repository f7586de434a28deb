"""What the JVMs of Spark are told that tests start, whoever starts them: spark-submit reads it from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "SPARK_SUBMIT_OPTS"
_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
# Plans for a few rows are interpreted: to compile code for each takes longer than to run it.
_INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"


def _shared() -> str:
    """Where `make` made it, what each JVM would else unpack and check anew. One that does not fit is passed over."""
    return f"-XX:SharedArchiveFile={_CLASSES} -Xlog:disable" if _CLASSES.is_file() else ""


def use_spark_options() -> None:
    """From here on, unless the variable is set."""
    os.environ.setdefault(VARIABLE, f"{_shared()} {_INTERPRETED}".strip())


def compiling() -> Mapping[str, str]:
    """Variables for drivers whose plans are compiled, as those of users are."""
    return {VARIABLE: _shared()}

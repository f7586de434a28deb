"""What the JVMs of Spark are told that tests start, whoever starts them: they read it from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_JVM, _SUBMIT = "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"
# What Java compiles for good it would use for hours; a test lasts seconds, and two processors are shared. It sweeps out
# what it has compiled, to compile it again, where the room for it is as small as it is without its second compiler.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
# Plans for a few rows are interpreted: to compile code for each takes longer than to run it.
_INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"


def _shared() -> str:
    """Where `make` made it, what each JVM would else unpack and check anew. One that does not fit is passed over."""
    return f"-XX:SharedArchiveFile={_CLASSES} -Xlog:disable" if _CLASSES.is_file() else ""


def use_spark_options() -> None:
    """From here on, of the variables those that are not set."""
    os.environ.setdefault(_JVM, _SHORT_LIVED)
    os.environ.setdefault(_SUBMIT, f"{_shared()} {_INTERPRETED}".strip())


def compiling() -> Mapping[str, str]:
    """Variables for drivers whose plans are compiled, as those of users are."""
    return {_SUBMIT: _shared()}

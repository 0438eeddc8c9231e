"""Steps on DataFrames that Spark's own API lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_in_arrow(frame: DataFrame, function: Any, schema: Any) -> DataFrame:
    """`DataFrame.mapInArrow`, without pandas: Spark's own refuses to work if it is not installed.

    The operator does not use pandas: only the helper that Spark wraps the function with checks it.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    wrapped: Any = UserDefinedFunction(
        function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    call = wrapped(*[frame[name] for name in frame.columns])
    plan: Any = frame
    return DataFrame(plan._jdf.mapInArrow(call._jc, False, None), frame.sparkSession)

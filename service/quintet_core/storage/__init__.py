"""Redis: keys, records, the function library, and the pipeline that every operation goes through."""

"""What spark-submit starts: `python -m quintet_spark`, for it takes a file and knows no modules."""

from quintet_spark.__main__ import main

if __name__ == "__main__":
    main(prog_name="python -m quintet_spark")

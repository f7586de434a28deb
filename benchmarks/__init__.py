"""Speed of Quintet beside beanstalkd, measured in one run on one machine: `python -m benchmarks --help`."""

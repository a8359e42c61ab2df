"""The core of the suite on other versions of Spark, Python, Java and libraries: `python -m tests.platforms [NAME]`."""

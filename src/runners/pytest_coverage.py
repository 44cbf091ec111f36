# Runs pytest and measures line coverage if coverage.py is installed. Ignores the repository's own coverage settings.
import sys

import pytest

report, arguments = sys.argv[1], sys.argv[2:]
try:
    from coverage import Coverage
except ImportError:
    sys.exit(pytest.main(arguments))
coverage = Coverage(data_file=None, config_file=False, source=["."])
coverage.start()
code = pytest.main(arguments)
coverage.stop()
coverage.lcov_report(outfile=report)
sys.exit(code)

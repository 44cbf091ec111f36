# Runs pytest and measures line coverage if coverage.py is installed, in the project's environment or beside the machine's
# pytest. Ignores the repository's own coverage settings.
import sys

import pytest

report, beside, arguments = sys.argv[1], sys.argv[2].split(":"), sys.argv[3:]
known = list(sys.path)
sys.path += beside
try:
    from coverage import Coverage
except ImportError:
    Coverage = None
sys.path[:] = known
if Coverage is None:
    sys.exit(pytest.main(arguments))
coverage = Coverage(data_file=None, config_file=False, source=["."])
coverage.start()
code = pytest.main(arguments)
coverage.stop()
coverage.lcov_report(outfile=report)
sys.exit(code)

#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git checkout 091991be0da19de9108dbe5e3752917fea3d7fdc test_requests.py
git apply -v - <<'EOF_114329324912'
...
EOF_114329324912
: '>>>>> Start Test Output'
pytest -rA --tb=short test_requests.py
: '>>>>> End Test Output'
git checkout 091991be0da19de9108dbe5e3752917fea3d7fdc test_requests.py

"""Never answers initialize.

The host waits for the initialize timeout and kills it: timeout.
"""

from __future__ import annotations

import child

child.read()
child.read()

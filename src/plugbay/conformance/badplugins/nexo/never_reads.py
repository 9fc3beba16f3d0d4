"""Never reads its input again while 10,000 events come.

Events are dropped, nobody waits: timeout.
"""

from __future__ import annotations

import time

import child

child.greet()
while True:
    time.sleep(60)

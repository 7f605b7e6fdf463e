"""toolrein in front of a server, with one configuration."""

import json
import os
import time

import processes
from processes import WORK


class Toolrein:
    def __init__(self, program, name, upstream_port, policies):
        """`policies`: tables of TOML that change the configuration that ships."""
        config = WORK / "configurations" / f"{name}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        # No heartbeat while a slow machine thinks: it would be an event that the server did not send.
        config.write_text(
            '[listen]\nproxy = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n[limits]\nkeepalive_comment = "10m"\n'
            f'[upstream]\nurl = "http://127.0.0.1:{upstream_port}/v1"\n[log]\nformat = "json"\n{policies}'
        )
        for variable in [variable for variable in os.environ if variable.startswith("TOOLREIN_")]:
            del os.environ[variable]
        self.child = processes.start(f"toolrein-{name}", [program, "serve", "--config", config])
        self.port = self._port()

    def stop(self):
        processes.stop(self.child)

    def _port(self):
        end = time.monotonic() + 20
        while time.monotonic() < end and self.child.poll() is None:
            for line in self.child.log.read_text().splitlines():
                fields = json.loads(line) if line.startswith("{") else {}
                if "proxy" in fields:
                    return int(str(fields["proxy"]).rpartition(":")[2])
            time.sleep(0.05)
        raise processes.Failed(f"toolrein does not listen: {processes.tail(self.child.log)}")

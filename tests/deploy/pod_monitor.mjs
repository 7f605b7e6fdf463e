// Checks the PodMonitors of standard input (a JSON list) against the Prometheus Operator's schema.
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { readFileSync } from "node:fs";

for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  new PodMonitor(document).validate();
}

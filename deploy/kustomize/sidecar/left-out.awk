# Lists the workloads of a rendered overlay that have no sidecar of toolrein, and the containers without OPENAI_BASE_URL
# of those that have one; fails if a workload was left out. Reads what kubectl kustomize writes:
#   kubectl kustomize . | awk -f left-out.awk
function report() {
  if (containers == 0) return
  if (!sidecar) { print kind " " name ": has no sidecar of toolrein"; failed = 1; return }
  for (i = 1; i <= count; i++) if (!(names[i] in pointed)) print kind " " name ": container " names[i] " does not use toolrein"
}
function begin() {
  kind = name = section = ""; containers = sidecar = count = 0
  split("", names); split("", pointed)
}
BEGIN { begin() }
/^---/ { report(); begin(); next }
/^kind: / { kind = $2 }
/^[^ ]/ { top = $1 }
top == "metadata:" && /^  name: / { name = $2 }
{ match($0, /^ */); indent = RLENGTH }
/^ +containers:$/ { section = "containers"; depth = indent; containers++; next }
/^ +initContainers:$/ { section = "init"; depth = indent; next }
section != "" && (indent < depth || (indent == depth && $1 != "-")) { section = "" }
# The members of a container follow its dash, in the order of their names.
section != "" && indent == depth && $1 == "-" { if (section == "containers") { count++; names[count] = count } }
section != "" && (indent == depth + 2 || (indent == depth && $1 == "-")) {
  line = $0; sub(/^ *- /, "", line); sub(/^ */, "", line)
  if (line ~ /^name: /) {
    sub(/^name: /, "", line)
    if (section == "init" && line == "toolrein") sidecar = 1
    if (section == "containers") { if (names[count] in pointed) pointed[line] = 1; names[count] = line }
  }
}
section == "containers" && indent > depth && /name: OPENAI_BASE_URL$/ { pointed[names[count]] = 1 }
END { report(); exit failed }

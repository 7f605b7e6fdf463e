{{- /* Sets what the values say of toolrein's container: (dict "root" $ "container" ...). Changes the container in place. */ -}}
{{- define "toolrein.container" -}}
{{- $values := .root.Values -}}
{{- $tag := $values.image.tag | default .root.Chart.AppVersion -}}
{{- $_ := set .container "image" (printf "%s:%s" $values.image.repository $tag) -}}
{{- with $values.image.pullPolicy }}{{ $_ := set $.container "imagePullPolicy" . }}{{ end -}}
{{- with $values.resources }}{{ $_ := set $.container "resources" . }}{{ end -}}
{{- range $variable := $values.env -}}
{{- include "toolrein.variable" (dict "container" $.container "variable" $variable) -}}
{{- end -}}
{{- end -}}

{{- /* Gives a container this variable, in place of one with its name: (dict "container" ... "variable" ...). */ -}}
{{- define "toolrein.variable" -}}
{{- $env := list -}}
{{- $variable := .variable -}}
{{- $replaced := false -}}
{{- range .container.env -}}
{{- if eq .name $variable.name }}{{ $env = append $env $variable }}{{ $replaced = true }}{{ else }}{{ $env = append $env . }}{{ end -}}
{{- end -}}
{{- if not $replaced }}{{ $env = append $env $variable }}{{ end -}}
{{- $_ := set .container "env" $env -}}
{{- end -}}

{{- /* Adds the sidecar to a pod: (dict "root" $ "pod" ... "scaled" ... "marked" ...). Changes the pod in place. */ -}}
{{- define "toolrein.sidecar" -}}
{{- $parts := (fromYaml (.root.Files.Get "files/sidecar/container.yaml")).template.spec -}}
{{- $container := first $parts.initContainers -}}
{{- include "toolrein.container" (dict "root" .root "container" $container) -}}
{{- $metadata := .pod.metadata | default dict -}}
{{- $labels := merge (dict "toolrein" "sidecar") ($metadata.labels | default dict) -}}
{{- if .scaled }}{{ $_ := set $labels "toolrein-eviction" "one-by-one" }}{{ end -}}
{{- $_ := set $metadata "labels" $labels -}}
{{- $_ := set .pod "metadata" $metadata -}}
{{- $spec := .pod.spec -}}
{{- $_ := set $spec "initContainers" (prepend ($spec.initContainers | default list) $container) -}}
{{- $_ := set $spec "volumes" (concat ($spec.volumes | default list) $parts.volumes) -}}
{{- $_ := set $spec "terminationGracePeriodSeconds" $parts.terminationGracePeriodSeconds -}}
{{- $url := dict "name" "OPENAI_BASE_URL" "value" "http://127.0.0.1:4242/v1" -}}
{{- $pointed := 0 -}}
{{- range $agent := $spec.containers -}}
{{- $names := list -}}
{{- range $agent.env }}{{ $names = append $names .name }}{{ end -}}
{{- if or (not $.marked) (has "OPENAI_BASE_URL" $names) -}}
{{- include "toolrein.variable" (dict "container" $agent "variable" $url) -}}
{{- $pointed = add1 $pointed -}}
{{- end -}}
{{- end -}}
{{- if not $pointed }}{{ fail "toolrein/containers is marked, and no container names OPENAI_BASE_URL" }}{{ end -}}
{{- end -}}

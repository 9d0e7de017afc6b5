{{- define "lapse.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lapse.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lapse.metadata" -}}
name: {{ include "lapse.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "lapse.selector" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/*
The files of the Secrets: for each variable of lapse, the Secret and the key. A volume for each
Secret has these keys and no more.
*/}}
{{- define "lapse.files" -}}
{{- $files := list -}}
{{- with .Values.nats.secret }}
{{- $files = append $files (dict "volume" "nats" "secret" .name "keys" (dict "LAPSE_NATS_PASSWORD_FILE" .password "LAPSE_NATS_CREDS" .creds "LAPSE_NATS_NKEY_FILE" .nkey)) -}}
{{- end }}
{{- with .Values.nats.tls }}
{{- $files = append $files (dict "volume" "nats-tls" "secret" .secret "keys" (dict "LAPSE_NATS_CA" .ca "LAPSE_NATS_CERT" .cert "LAPSE_NATS_KEY" .key)) -}}
{{- end }}
{{- with .Values.redis.secret }}
{{- $files = append $files (dict "volume" "redis" "secret" .name "keys" (dict "LAPSE_REDIS_PASSWORD_FILE" .password "LAPSE_REDIS_SENTINEL_PASSWORD_FILE" .sentinelPassword)) -}}
{{- end }}
{{- with .Values.redis.tls }}
{{- $files = append $files (dict "volume" "redis-tls" "secret" .secret "keys" (dict "LAPSE_REDIS_CA" .ca "LAPSE_REDIS_CERT" .cert "LAPSE_REDIS_KEY" .key)) -}}
{{- end }}
{{- with .Values.http.secret }}
{{- $files = append $files (dict "volume" "http" "secret" .name "keys" (dict "LAPSE_HTTP_TOKEN_FILE" .tokens)) -}}
{{- end }}
{{- $used := list -}}
{{- range $files }}
{{- if .secret }}{{ $used = append $used . }}{{ end -}}
{{- end }}
{{- dict "files" $used | toYaml -}}
{{- end -}}

{{- define "lapse.image" -}}
{{- with .Values.image -}}
image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }} # the values have the digest
{{- with .pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The volume of a Secret of lapse.files. */}}
{{- define "lapse.volume" -}}
- name: {{ .volume }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- range $key := .keys | values | uniq | compact | sortAlpha }}
      - { key: {{ $key | quote }}, path: {{ $key | quote }} }
      {{- end }}
{{- end -}}

{{/* The rules of the network policy lead to a namespace, or to any address. */}}
{{- define "lapse.namespace" -}}
- namespaceSelector:
    matchLabels: { kubernetes.io/metadata.name: {{ . | quote }} }
{{- end -}}

{{/* The variables of lapse. Those of .Values.config come last, and replace others. */}}
{{- define "lapse.config" -}}
{{- $config := dict "LAPSE_NATS" .Values.nats.url "LAPSE_REDIS" .Values.redis.url "LAPSE_HTTP_LISTEN" ":7070" "LAPSE_LOG_FORMAT" "json" -}}
{{- with .Values.nats.user }}{{ $_ := set $config "LAPSE_NATS_USER" . }}{{ end -}}
{{- with .Values.nats.inboxPrefix }}{{ $_ := set $config "LAPSE_NATS_INBOX_PREFIX" . }}{{ end -}}
{{- with .Values.redis.user }}{{ $_ := set $config "LAPSE_REDIS_USER" . }}{{ end -}}
{{- if gt (int .Values.shards) 1 }}{{ $_ := set $config "LAPSE_SHARDS" (toString .Values.shards) }}{{ end -}}
{{- if gt (int .Values.streamReplicas) 1 }}{{ $_ := set $config "LAPSE_REPLICAS" (toString .Values.streamReplicas) }}{{ end -}}
{{- range $file := (include "lapse.files" . | fromYaml).files -}}
{{- range $name, $key := $file.keys -}}
{{- if $key }}{{ $_ := set $config $name (printf "/run/secrets/%s/%s" $file.volume $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.config }}{{ $_ := set $config $name (toString $value) }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

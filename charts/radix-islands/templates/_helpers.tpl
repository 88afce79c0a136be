{{- define "radix-islands.labels" -}}
app.kubernetes.io/name: radix-islands
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "radix-islands.selector" -}}
app.kubernetes.io/name: radix-islands
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "radix-islands.account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{/* Not empty where objects of the Prometheus Operator are to be made. */}}
{{- define "radix-islands.prometheus" -}}
{{- $when := .Values.metrics.prometheusOperator -}}
{{- if or (eq $when "always") (and (eq $when "auto") (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
yes
{{- end -}}
{{- end }}

{{/* Their metadata; the argument is a list: the root, and what to put behind the release's name. */}}
{{- define "radix-islands.monitoring" -}}
{{- $root := index . 0 -}}
name: {{ $root.Release.Name }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "radix-islands.labels" $root | nindent 2 }}
  {{- with $root.Values.metrics.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

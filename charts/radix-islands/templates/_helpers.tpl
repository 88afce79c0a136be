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

{{- define "lapse.labels" -}}
app.kubernetes.io/name: lapse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What both kinds of pods have: nobody's user, no capability, nothing to write to. */}}
{{- define "lapse.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 45
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "lapse.container" -}}
image: {{ .Values.image }}
ports:
  - { name: http, containerPort: 7432 }
livenessProbe:
  httpGet: { path: /healthz, port: http }
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: http }
  periodSeconds: 5
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: config, mountPath: /etc/lapse, readOnly: true }
  - { name: keys, mountPath: /etc/lapse-keys, readOnly: true }
{{- end }}

{{- define "lapse.environment" -}}
- { name: LAPSE_CONFIG, value: /etc/lapse/lapse.yaml }
- { name: LAPSE_KEYS, value: /etc/lapse-keys }
{{- end }}

//go:build long

package evidence_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/evidence"
)

// readWithSDK reads messages as a consumer in Python does, and prints what it has got of each.
const readWithSDK = `
import base64, json, sys
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
for line in sys.stdin:
    m = json.loads(line)
    headers = {k: base64.b64decode(v or "") for k, v in m["headers"].items()}
    e = from_kafka_event(KafkaMessage(headers=headers, key=base64.b64decode(m["key"]), value=base64.b64decode(m["value"])))
    print(json.dumps({"id": e.get_id(), "data": e.get_data()}))
`

// The SDK for Python (package cloudevents 2.2) tells the modes apart by headers.
func TestTheSDKForPythonReadsTheDataOfEveryCloudEvent(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here")
	}
	home := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(t.Context(), python, "-m", "venv", home).CombinedOutput(); err != nil {
		t.Skipf("python3 makes no venv: %v: %s", err, out)
	}
	python = filepath.Join(home, "bin", "python")
	if out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "-q", "cloudevents==2.2.0").CombinedOutput(); err != nil {
		t.Skipf("the package cloudevents cannot be had: %v: %s", err, out)
	}
	var in, said bytes.Buffer
	var want []string
	for _, routed := range examplesBy(t, routeOf(evidence.FormatCloudEvents)) {
		headers := map[string][]byte{}
		for _, h := range routed.Headers {
			headers[h.Key] = h.Value
		}
		line, err := json.Marshal(map[string]any{"headers": headers, "key": routed.Key, "value": routed.Value})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
		want = append(want, string(routed.Value))
	}
	command := exec.CommandContext(t.Context(), python, "-c", readWithSDK)
	command.Stdin, command.Stderr = &in, &said
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(want) || len(want) < 5 {
		t.Fatalf("%d events were read of %d", len(lines), len(want))
	}
	for i := range want {
		var got, envelope struct {
			ID   string         `json:"id"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatalf("%s: %v", lines[i], err)
		}
		if err := json.Unmarshal([]byte(want[i]), &envelope); err != nil {
			t.Fatal(err)
		}
		if got.ID != envelope.ID || got.Data["event_id"] != envelope.Data["event_id"] || got.Data["event_id"] == nil {
			t.Errorf("the SDK reads %s of %s", lines[i], want[i])
		}
	}
}

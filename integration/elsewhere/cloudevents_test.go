package elsewhere

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// readByCloudEvents has the SDK of CloudEvents read an event with everything that one can have: an
// id that is escaped in the subject, a trace, and a document with text of every kind.
func readByCloudEvents(t *testing.T, dir string, c *harness.Client) {
	t.Helper()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	document := `{"text": "ä \u0000 <&> \"quoted\" 雪", "ttl": 1}`
	c.Configure("odd", `{"defaultTtl": -1}`)
	o := c.Want(wire.StatusCreated, wire.Create, "odd", "a.b ü/*", document, wire.HeaderTrace, trace)
	c.ExpiryOf("odd", "a.b ü/*", o.Etag, harness.Limit)

	type message struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	var messages []message
	var want, got map[string]any
	for _, e := range c.Events() {
		if e.Published() != c.Prefix.Expired("odd", "a.b ü/*") {
			continue
		}
		m := message{map[string]string{}, string(e.Data)}
		for name := range e.Header {
			m.Headers[name] = e.Header.Get(name)
		}
		messages = append(messages, m)
		var data map[string]any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		want = map[string]any{
			"specversion": "1.0", "type": "lapse.document.expired.v1", "source": m.Headers["ce-source"],
			"subject": wire.EscapeID("a.b ü/*"),
			"id":      "odd/" + wire.EscapeID("a.b ü/*") + "/" + o.Etag.String(), "time": o.ExpiresAt.String(),
			"datacontenttype": "application/json",
			"traceparent":     trace, "data": data,
		}
	}
	if len(messages) != 1 || !strings.HasSuffix(messages[0].Headers["ce-source"], "/collections/odd") {
		t.Fatalf("the events are %+v", messages)
	}
	text, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("testdata/events.mjs")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "events.mjs"), program, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "events.mjs")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node events.mjs: %v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the SDK reads another event (-want +got):\n%s", diff)
	}
}

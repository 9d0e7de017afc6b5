package integration

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestEmbeddedRedisIsClosed: the embedded Redis listens nowhere by default: the process listens at its NATS and HTTP
// addresses alone, makes no password, and serves all the same.
//
// It fails if anything else in the process opens a port.
func TestEmbeddedRedisIsClosed(t *testing.T) {
	t.Parallel()
	at, data := harness.Address(harness.FreePort(t)), filepath.Join(t.TempDir(), "data")
	l := harness.PrepareLapse(t, "--nats-listen", at, "--data", data)
	l.Start()
	want := []string{at, l.HTTP}
	slices.Sort(want)
	if got := l.Listening(); !slices.Equal(got, want) {
		t.Errorf("it listens at %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(data, "redis-password")); err == nil {
		t.Error("there is a password for nothing")
	}
	c := harness.NewClient(t, "nats://"+at, "")
	c.Want(201, wire.Create, "orders", "1", `{}`)
	if !c.Found("orders", "1") {
		t.Error("the document is not found")
	}
}

// TestEmbeddedRedisWithstands: the port of the embedded Redis withstands a web page, and messages that announce more
// than there is: the documents stay, and the process goes on. The password is in its file alone, which only its owner
// reads, and which goes with the process.
//
// It fails if an HTTP request or a client without the password runs a command, or if a length ends
// the process.
func TestEmbeddedRedisWithstands(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	w := &world{t: t, lapse: harness.EmbeddedLapse(t, "--ready-file", ready)}
	w.Client = harness.NewClient(t, w.lapse.NATSURL, "")
	etag := w.Want(201, wire.Create, "orders", "1", `{}`).Etag

	form := "EVAL \"for _, k in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', k) end\" 0\r\nEVAL " +
		"redis.call('FLUSHALL') 0\r\nFLUSHALL\r\n"
	if resp, err := http.Post("http://"+w.lapse.Redis+"/", "text/plain", strings.NewReader(form)); err == nil {
		_ = resp.Body.Close()
	}
	for _, text := range []string{"FLUSHALL\r\n", "*1\r\n$9223372036854775807\r\n", "*9223372036854775807\r\n"} {
		c, err := net.Dial("tcp", w.lapse.Redis)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(harness.Limit))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		if n, err := c.Read(b); !strings.HasPrefix(string(b[:n]), "-") {
			t.Errorf("%q: %q, %v", text, b[:n], err)
		}
	}
	if !w.lapse.Running() {
		t.Fatal("lapse has ended")
	}
	if !w.Found("orders", "1") {
		t.Error("the document is gone")
	}
	w.connectEmbedded()
	if got := w.settled("orders", "1", uint64(etag)); got.Etag != etag {
		t.Errorf("with the password: %v", got)
	}

	file := filepath.Join(w.lapse.Data(), "redis-password")
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file of the password: %v, %v", info, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	password := strings.TrimSpace(string(content))
	announced, err := os.ReadFile(ready)
	if err != nil || len(password) < 20 || !strings.Contains(string(announced), `"redis":"redis://`+w.lapse.Redis+`"`) {
		t.Errorf("the password %q, the ready file %s: %v", password, announced, err)
	}
	shown := map[string]string{"log": w.lapse.Log(), "ready file": string(announced), "metrics": w.lapse.Metrics(),
		"arguments": w.lapse.CommandLine()}
	shown["status"] = run(t, "status", "--server", w.lapse.NATSURL)
	if resp, err := http.Get("http://" + w.lapse.HTTP + "/readyz"); err != nil {
		t.Error(err)
	} else {
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		shown["readyz"] = string(body)
	}
	for where, text := range shown {
		if strings.Contains(text, password) {
			t.Errorf("the password is in the %s", where)
		}
	}
	if code := w.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file of the password outlives the process")
	}
}

package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/cli"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// service is a NATS server on which the test answers reads and configurations in place of
// lapse, so that it can also play another client that comes in between.
type service struct {
	t   *testing.T
	url string
	nc  *nats.Conn

	mu       sync.Mutex
	config   wire.Config
	received []string // bodies and conditions of the messages
	between  func()   // called between a read and the write after it
	forecast string   // the request of a forecast
	pages    []string // replies that list the collections
}

func newService(t *testing.T) *service {
	s := &service{t: t, url: natstest.Start(t, natstest.Options{})}
	var err error
	if s.nc, err = nats.Connect(s.url, natstest.Patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nc.Close)
	js := natstest.JetStream(t, s.nc)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LAPSE_LOG",
		Subjects: wire.DefaultPrefix.Log(0, 1).Subjects()}); err != nil {
		t.Fatal(err)
	}
	for subject, f := range map[string]func(*nats.Msg){
		"lapse.read.config.orders":   s.read,
		"lapse.config.orders":        s.write,
		"lapse.drop.orders":          s.write,
		"lapse.read.count.orders":    func(m *nats.Msg) { s.respond(m, wire.CountReply{}) },
		"lapse.read.forecast.orders": s.forecasts,
		"lapse.read.collections":     s.collections,
	} {
		if _, err := s.nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) respond(m *nats.Msg, reply any) {
	text, err := json.Marshal(reply)
	if err == nil {
		err = m.Respond(text)
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *service) read(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.respond(m, s.config)
	if s.between != nil {
		s.between()
	}
}

func (s *service) write(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	condition := m.Header.Get(wire.HeaderIfMatch)
	s.received = append(s.received, fmt.Sprintf("%s if %q", m.Data, condition))
	outcome := `{"status":200,"etag":"99"}`
	if condition != "" && condition != s.config.Etag.String() {
		outcome = `{"status":412,"error":"the configuration has another etag"}`
	}
	if err := s.nc.Publish(m.Header.Get(wire.HeaderReplyTo), []byte(outcome)); err != nil {
		s.t.Error(err)
	}
}

func (s *service) forecasts(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forecast = string(m.Data)
	_ = m.Respond([]byte(`{"atOnce":3,"buckets":[{"from":"2026-01-31T12:00:00.000Z",` +
		`"until":"2026-01-31T13:00:00.000Z","count":5}]}`))
}

func (s *service) collections(m *nats.Msg) {
	var req wire.ListRequest
	if err := json.Unmarshal(m.Data, &req); err != nil {
		s.t.Error(err)
	}
	n := 0
	if req.Continuation != "" {
		_, _ = fmt.Sscan(req.Continuation, &n)
	}
	_ = m.Respond([]byte(s.pages[n]))
}

// run runs a command, and returns what it printed and its exit code.
func (s *service) run(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = cli.Run(s.t.Context(), append(args, "--server", s.url), output.Streams{In: strings.NewReader(""), Out: &out,
		Err: &errs})
	return out.String(), errs.String(), code
}

func TestConfigChangesWhatItNames(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		now  wire.Config
		args []string
		want string
	}{
		// never configured
		{wire.Config{IndexingMode: wire.Consistent}, []string{"--default-ttl", "5"},
			`{"defaultTtl":5,"indexingMode":"consistent"} if ""`},
		{wire.Config{DefaultTTL: new(int32(7)), IndexingMode: wire.Consistent, Etag: 12}, []string{"--indexing", "lazy"},
			`{"defaultTtl":7,"indexingMode":"lazy"} if "12"`},
		{wire.Config{DefaultTTL: new(int32(7)), IndexingMode: wire.Lazy, Etag: 12}, []string{"--default-ttl", "off"},
			`{"defaultTtl":null,"indexingMode":"lazy"} if "12"`},
		{wire.Config{IndexingMode: wire.NoIndex, Etag: 12}, []string{"--default-ttl", "off", "--if-match", "*"},
			`{"defaultTtl":null,"indexingMode":"none"} if "12"`},
		{wire.Config{IndexingMode: wire.Consistent, Etag: 12}, []string{"--default-ttl", "-1", "--if-match", "12"},
			`{"defaultTtl":-1,"indexingMode":"consistent"} if "12"`},
	} {
		s.config, s.received = c.now, nil
		_, stderr, code := s.run(append([]string{"config", "orders"}, c.args...)...)
		if diff := cmp.Diff([]string{c.want}, s.received); diff != "" || code != 0 {
			t.Errorf("%v: exit code %d, %s (-want +got):\n%s", c.args, code, stderr, diff)
		}
	}
}

func TestConfigBeginsAgainIfAnotherClientCameInBetween(t *testing.T) {
	s := newService(t)
	s.config = wire.Config{IndexingMode: wire.Consistent, Etag: 12}
	s.between = func() { // another client sets the default, once
		s.config.Etag, s.config.DefaultTTL, s.between = 13, new(int32(60)), nil
	}
	stdout, _, code := s.run("config", "orders", "--indexing", "lazy")
	want := []string{`{"defaultTtl":null,"indexingMode":"lazy"} if "12"`,
		`{"defaultTtl":60,"indexingMode":"lazy"} if "13"`}
	if diff := cmp.Diff(want, s.received); diff != "" || code != 0 || stdout != "configured orders default-ttl=60 "+
		"indexing=lazy\n" {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, stdout, diff)
	}

	// If another client comes in between each time, it gives up.
	s.received = nil
	s.between = func() { s.config.Etag++ }
	_, stderr, code := s.run("config", "orders", "--indexing", "lazy")
	if code != 4 || len(s.received) != 5 || stderr != "lapse: orders: 412: the configuration has another etag\n" {
		t.Errorf("exit code %d after %d attempts, %s", code, len(s.received), stderr)
	}

	// With an etag from the user there is one attempt.
	s.received, s.between = nil, nil
	_, _, code = s.run("config", "orders", "--indexing", "lazy", "--if-match", "7")
	if diff := cmp.Diff([]string{`{"defaultTtl":60,"indexingMode":"lazy"} if "7"`}, s.received); diff != "" || code != 4 {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
}

func TestDropWithACondition(t *testing.T) {
	s := newService(t)
	s.config = wire.Config{IndexingMode: wire.Consistent, Etag: 12}
	stdout, _, code := s.run("drop", "orders", "--if-match", "12")
	if code != 0 || !strings.HasPrefix(stdout, "dropped orders seq=") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
	_, stderr, code := s.run("drop", "orders", "--if-match", "11")
	if code != 4 || stderr != "lapse: orders: 412: the configuration has another etag\n" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if diff := cmp.Diff([]string{` if "12"`, ` if "11"`}, s.received); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.config = wire.Config{IndexingMode: wire.Consistent} // never configured, and empty
	s.received = nil
	if _, _, code = s.run("drop", "orders"); code != 3 || s.received != nil {
		t.Errorf("exit code %d, %s", code, s.received)
	}
}

func TestConfigDryRun(t *testing.T) {
	s := newService(t)
	for flag, want := range map[string]string{
		"60":  `{"buckets":10,"within":"1m0s","defaultTtl":60}`,
		"-1":  `{"buckets":10,"within":"1h0m0s","defaultTtl":-1}`,
		"off": `{"buckets":10,"within":"1h0m0s","defaultTtl":null}`,
	} {
		stdout, stderr, code := s.run("config", "orders", "--dry-run", "--default-ttl", flag)
		if code != 0 || s.forecast != want {
			t.Errorf("%s: exit code %d, %s, asked for %s", flag, code, stderr, s.forecast)
		}
		const table = "AFTER                     UNTIL                     EXPIRE\n2026-01-31T12:00:00.000Z  " +
			"2026-01-31T13:00:00.000Z  5\n"
		if want := "orders default-ttl=" + flag + " would expire 3 at once; nothing is changed\n" + table; stdout != want {
			t.Errorf("%s: %s", flag, stdout)
		}
	}
	stdout, _, _ := s.run("config", "orders", "--dry-run", "--default-ttl", "60", "-o", "json")
	if want := `{"buckets":[{"from":"2026-01-31T12:00:00.000Z","until":"2026-01-31T13:00:00.000Z","count":5}],` +
		`"atOnce":3}` + "\n"; stdout != want {
		t.Errorf("%s", stdout)
	}
	if s.received != nil {
		t.Errorf("it changed something: %s", s.received)
	}
}

func TestCollections(t *testing.T) {
	s := newService(t)
	s.pages = []string{
		`{"collections":[{"name":"carts","defaultTtl":null,"indexingMode":"none","live":2,"expired":0},{"name":"orders",` +
			`"defaultTtl":60,"indexingMode":"consistent","etag":"7","live":3,"expired":1}],"continuation":"1"}`,
		`{"collections":[],"continuation":"2"}`,
		`{"collections":[{"name":"users","defaultTtl":-1,"indexingMode":"lazy","etag":"9","live":0,"expired":0}]}`,
	}
	stdout, _, code := s.run("collections")
	const want = "COLLECTION  DEFAULT-TTL  INDEXING    LIVE  EXPIRED\n" +
		"carts       off          none        2     0\n" +
		"orders      60           consistent  3     1\n"
	fields := func(text string) (all [][]string) {
		for line := range strings.Lines(text) {
			all = append(all, strings.Fields(line))
		}
		return all
	}
	if diff := cmp.Diff(append(fields(want), []string{"users", "-1", "lazy", "0", "0"}), fields(stdout)); diff != "" ||
		code != 0 {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
	stdout, _, _ = s.run("collections", "-o", "json")
	const wantJSON = `{"name":"carts","defaultTtl":null,"indexingMode":"none","live":2,"expired":0}
{"name":"orders","defaultTtl":60,"indexingMode":"consistent","etag":"7","live":3,"expired":1}
{"name":"users","defaultTtl":-1,"indexingMode":"lazy","etag":"9","live":0,"expired":0}
`
	if diff := cmp.Diff(wantJSON, stdout); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

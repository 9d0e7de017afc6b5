package cli_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestNoCollectionIsSaidOnlyIfItIsKnown: what lapse does not tell a user is no error: an empty result is then the
// answer, and there is no nearest name.
func TestNoCollectionIsSaidOnlyIfItIsKnown(t *testing.T) {
	s := newService(t)
	refuses := func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {"not for you"}, micro.ErrorCodeHeader: {"403"}}})
	}
	for subject, f := range map[string]func(*nats.Msg){
		"lapse.read.count.*":       func(m *nats.Msg) { s.respond(m, wire.CountReply{}) },
		"lapse.read.list.*":        func(m *nats.Msg) { s.respond(m, wire.ListReply{}) },
		"lapse.read.config.hidden": refuses,
		"lapse.read.config.order":  func(m *nats.Msg) { s.respond(m, wire.Config{IndexingMode: wire.Consistent}) },
		"lapse.read.config.lazy":   func(m *nats.Msg) { s.respond(m, wire.Config{IndexingMode: wire.Lazy}) },
	} {
		if _, err := s.nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s.pages = []string{`{"collections":[{"name":"a"}],"continuation":"1"}`, `{"collections":[{"name":"orders"}]}`}
	for _, c := range []struct {
		args, stdout, stderr string
		code                 int
	}{
		{"hidden", "hidden live=0 expired=0\n", "", 0},
		{"lazy", "lazy live=0 expired=0\n", "", 0},
		{"order", "", "lapse: order: there is no such collection: did you mean orders?\n", 3},
	} {
		if stdout, stderr, code := s.run("count", c.args); stdout != c.stdout || stderr != c.stderr || code != c.code {
			t.Errorf("count %s: %q, %q, %d", c.args, stdout, stderr, code)
		}
	}
	for _, command := range []string{"list", "export"} {
		if _, stderr, code := s.run(command, "hidden"); code != 0 || stderr != "" {
			t.Errorf("%s hidden: %q, %d", command, stderr, code)
		}
	}
	s.pages = []string{`{"collections":1}`}
	if _, stderr, code := s.run("count", "order"); stderr != "lapse: order: there is no such collection\n" || code != 3 {
		t.Errorf("without the list of collections: %q, %d", stderr, code)
	}
}

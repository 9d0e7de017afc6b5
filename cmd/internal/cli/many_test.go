package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestManyLeavesAloneWhatHasChanged: delete --where deletes a document only in the version that the query has read. It
// says how many had changed, and exits with 4.
func TestManyLeavesAloneWhatHasChanged(t *testing.T) {
	s := newService(t)
	answer := func(subject string, f func(*nats.Msg)) {
		if _, err := s.nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
	}
	answer("lapse.read.query.orders", func(m *nats.Msg) {
		var req wire.QueryRequest
		if err := json.Unmarshal(m.Data, &req); err != nil || string(req.Where["/user"]) != "7" {
			t.Errorf("%s, %v", m.Data, err)
		}
		page := wire.QueryReply{Examined: 2, Continuation: "more"}
		for _, n := range map[string][]int{"": {5, 6}, "more": nil, "last": {7}}[req.Continuation] {
			page.Documents = append(page.Documents, wire.Document{ID: fmt.Sprint("d", n), Etag: wire.Etag(n),
				Document: []byte(`{"user":7}`)})
		}
		page.Continuation = map[string]string{"": "more", "more": "last"}[req.Continuation]
		if req.Count {
			page = wire.QueryReply{Count: new(int64(3)), Examined: 3}
		}
		s.respond(m, page)
	})
	var received []string
	answer("lapse.write.delete.orders.*", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		received = append(received, m.Subject+" "+m.Header.Get(wire.HeaderIfMatch))
		outcome := `{"status":204}`
		if strings.HasSuffix(m.Subject, ".d6") { // another client was faster
			outcome = `{"status":412,"error":"the document's etag is 9"}`
		}
		if err := s.nc.Publish(m.Header.Get(wire.HeaderReplyTo), []byte(outcome)); err != nil {
			t.Error(err)
		}
	})
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}

	stdout, _, code := s.run("delete", "orders", "--where", "user=7", "--dry-run")
	if code != 0 || stdout != "3 documents of orders would be deleted\n" || received != nil {
		t.Errorf("a dry run: exit code %d, %s, it sent %v", code, stdout, received)
	}
	stdout, stderr, code := s.run("delete", "orders", "--where", "user=7")
	const left = "lapse: orders: 1 document had changed or was gone when it was to be deleted, and was left alone: " +
		"repeat the command to look at it again\n"
	if code != 4 || stdout != "deleted orders documents=2 changed=1 failed=0\n" || stderr != left {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	slices.Sort(received)
	want := []string{"lapse.write.delete.orders.d5 5", "lapse.write.delete.orders.d6 6", "lapse.write.delete.orders.d7 7"}
	if diff := cmp.Diff(want, received); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stdout, _, _ = s.run("delete", "orders", "--where", "user=7", "-o", "json")
	if stdout != `{"documents":2,"gone":0,"changed":1,"failed":0}`+"\n" {
		t.Errorf("%s", stdout)
	}
}

package service_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestSlidesHaveIDsThatNobodyKnows: a writer of another collection has used up each id that follows from what can be
// known of a document, and the ids of earlier touches, and the touch of a read comes into the log all the same. Of
// several reads of one version it comes once.
//
// It fails if the id follows from the etag, or if there is none.
func TestSlidesHaveIDsThatNobodyKnows(t *testing.T) {
	srv := inprocess.Start(t, &server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()})
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect(srv.ClientURL(), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	log, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: wire.DefaultPrefix.LogStream(),
		Subjects: []string{"lapse.write.>"}})
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	use := func(id string) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "lapse.write.upsert.orders.1", Data: []byte("{}"),
			Header: nats.Header{jetstream.MsgIDHeader: {id}}}); err != nil {
			t.Fatal(err)
		}
		used[id] = true
	}
	for etag := wire.Etag(1); etag <= 20; etag++ {
		for _, id := range []string{"slide/%s", "slide/sessions/a/%s", "sessions/a/%s", "%s"} {
			use(fmt.Sprintf(id, etag))
		}
		before := log.CachedInfo().State.LastSeq
		sliding := service.Sliding{NATS: js.Conn(), Prefix: wire.DefaultPrefix,
			Reader: fake{get: func(context.Context, string, string) (sink.Document, error) {
				return sink.Document{ID: "a", Etag: etag, Slides: true}, nil
			}}}
		for range 3 {
			if _, err := sliding.Get(t.Context(), "sessions", "a"); err != nil {
				t.Fatal(err)
			}
		}
		use(fmt.Sprintf("behind/%s", etag)) // so all touches have come
		last, err := log.GetLastMsgForSubject(t.Context(), "lapse.write.touch.sessions.a")
		if err != nil {
			t.Fatalf("etag %s: %v", etag, err)
		}
		info, err := log.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id := last.Header.Get(jetstream.MsgIDHeader); last.Header.Get(wire.HeaderIfMatch) != etag.String() || used[id] ||
			info.State.LastSeq != before+6 {
			t.Errorf("etag %s: the last touch is %v, and the log went on from %d to %d", etag, last.Header, before,
				info.State.LastSeq)
		} else {
			used[id] = true
		}
	}
}

// renewing is a fake that can wait for a renewal.
type renewing struct{ fake }

// Renew implements [service.Renewer].
func (renewing) Renew(context.Context, string, string) (sink.Document, error) {
	return sink.Document{Etag: 1, Body: []byte(`"renewed"`)}, nil
}

// TestGetRenews: a read waits for the renewal of the document if its request says so, and else it does not.
func TestGetRenews(t *testing.T) {
	_, nc := start(t, renewing{fake{get: func(context.Context, string, string) (sink.Document, error) {
		return sink.Document{Etag: 1, Body: []byte(`"read"`)}, nil
	}}}, service.Options{})
	for body, want := range map[string]string{"": `"read"`, `{"renew":false}`: `"read"`, `{"renew":true}`: `"renewed"`} {
		if got := string(request(t, nc, "lapse.read.get.sessions.a", body).Data); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	wantFailure(t, request(t, nc, "lapse.read.get.sessions.a", `{"renew":1}`), 400, "renew", "true or false")
}

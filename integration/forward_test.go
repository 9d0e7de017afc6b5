package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/wire"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hook is a receiver of webhooks that is down a third of the time: nobody listens, or it answers 503, or
// it takes the request and breaks the connection off.
type hook struct {
	t       *testing.T
	address string
	server  *http.Server

	mu       sync.Mutex
	down     bool
	breaks   bool
	taken    map[string][]int // versions by document, in the order in which they were taken
	bodies   map[string]string
	requests int
}

func newHook(t *testing.T) *hook {
	h := &hook{t: t, address: harness.Address(harness.FreePort(t)), taken: make(map[string][]int),
		bodies: make(map[string]string)}
	h.listen()
	t.Cleanup(func() { _ = h.server.Close() })
	return h
}

func (h *hook) listen() {
	l, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Error(err)
		return
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: harness.Limit}
	go func() { _ = h.server.Serve(l) }()
}

// goUpAndDown is down for one second of three until ctx is done, and then up.
func (h *hook) goUpAndDown(ctx context.Context) {
	set := func(down, breaks bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.down, h.breaks = down, breaks
	}
	for n := 0; ; n++ {
		if !pause(ctx, 2*time.Second) {
			return
		}
		if n%3 == 0 {
			_ = h.server.Close()
		} else {
			set(true, n%3 == 1)
		}
		goOn := pause(ctx, time.Second)
		if set(false, false); n%3 == 0 {
			h.listen()
		}
		if !goOn {
			return
		}
	}
}

// pause reports whether ctx was not done meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *hook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the process was killed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	receiver, err := webhooks.NewWebhook(webhookSecret)
	if err == nil {
		err = receiver.Verify(body, req.Header)
	}
	id := req.Header.Get("webhook-id")
	if before, ok := h.bodies[id]; ok && before != string(body) {
		err = errors.Join(err, fmt.Errorf("%s has another body than before", id))
	}
	h.bodies[id] = string(body)
	var event struct {
		Data struct {
			ID      string
			Version int
		}
	}
	if err = errors.Join(err, json.Unmarshal(body, &event)); err != nil {
		h.t.Errorf("request %v: %v\n%s", req.Header, err, body)
	}
	switch {
	case h.down && h.breaks:
		panic(http.ErrAbortHandler)
	case h.down:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.taken[event.Data.ID] = append(h.taken[event.Data.ID], event.Data.Version)
	w.WriteHeader(http.StatusNoContent)
}

// count is how many events were taken, and how many of them for the first time.
func (h *hook) count() (all, first int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, versions := range h.taken {
		all += len(versions)
		first += len(slices.Compact(slices.Sorted(slices.Values(versions))))
	}
	return all, first
}

// publishVersions publishes an event about each of some documents, until the stream has each once.
func publishVersions(ctx context.Context, js jetstream.JetStream, documents, version int) error {
	left := make(map[int]bool)
	for document := range documents {
		left[document] = true
	}
	for len(left) > 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("version %d: %d events are not published: %w", version, len(left), ctx.Err())
		}
		acks := make(map[int]jetstream.PubAckFuture)
		for document := range left {
			id := fmt.Sprint(document)
			ceID := fmt.Sprintf("orders/%s/%d", id, version)
			msg := &nats.Msg{Subject: wire.DefaultPrefix.Expired("orders", id),
				Data: fmt.Appendf(nil, `{"id":%q,"version":%d}`, id, version), Header: nats.Header{
					"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"},
					"ce-source": {"/lapse/17/collections/orders"}, "ce-subject": {id}, "ce-id": {ceID},
				}}
			if ack, err := js.PublishMsgAsync(msg, jetstream.WithMsgID(ceID)); err == nil {
				acks[document] = ack
			}
		}
		timeout := time.After(2 * time.Second)
		for document, ack := range acks {
			select {
			case <-ack.Ok():
				delete(left, document)
			case <-ack.Err():
			case <-timeout:
				timeout = time.After(0)
			}
		}
	}
	return nil
}

// TestAll_Forward: two "lapse forward" share the events of a collection. They, the nats-server and the receiver are
// killed in turn, and the receiver is down a third of the time. LAPSE_FAULTS is the number of faults (8 if it is not
// set).
//
// It fails if the receiver does not get an event, or gets the events of a document in another order; if a
// repetition has another id or body, or no valid signature; if an event is given up.
func TestAll_Forward(t *testing.T) {
	t.Parallel()
	const documents = 200
	faults := number(t, "LAPSE_FAULTS", 8)
	w := withShards(t, 1)
	server, operator, forwarder := w.nats, asJetStream(t, w.nats, "operator"), asJetStream(t, w.nats, "forwarder")
	w.Configure("orders", `{"defaultTtl":-1}`)
	w.Want(201, wire.Create, "orders", "first", `{"ttl":1}`)
	w.mirrored(t, forwarder)
	w.lapse.Terminate() // the events from here on are those of the test
	receiver := newHook(t)
	start := forwarders(t, server, "http://"+receiver.address)
	all := []*harness.Process{start("forward-1"), start("forward-2")}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	upAndDown, up := context.WithCancel(ctx)
	var running, publisher sync.WaitGroup
	running.Go(func() { receiver.goUpAndDown(upAndDown) })
	publishing, published := context.WithCancel(ctx)
	versions := 0
	publisher.Go(func() {
		for ; publishing.Err() == nil; versions++ {
			if err := publishVersions(ctx, operator, documents, versions); err != nil {
				t.Error(err)
			}
			pause(publishing, 200*time.Millisecond)
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	for n := range faults {
		pause(ctx, time.Duration(500+r.IntN(3000))*time.Millisecond)
		switch n % 4 {
		case 0, 2:
			all[n/2%2].Kill()
		case 1:
			server.Kill()
			server.Start()
		case 3:
			all[0].Stop()
			pause(ctx, 7*time.Second) // longer than it keeps its pins
			all[0].Continue()
		}
		for _, p := range all {
			if !p.Running() {
				p.Launch()
			}
		}
	}
	published()
	publisher.Wait()
	harness.Until(t, 2*harness.Limit, "all events are taken", func(context.Context) error {
		for _, p := range all {
			if !p.Running() { // NATS was away when it started
				p.Launch()
			}
		}
		if _, first := receiver.count(); first != versions*documents {
			return fmt.Errorf("%d of %d", first, versions*documents)
		}
		return nil
	})
	up()
	running.Wait()
	for _, p := range all {
		if code := p.Terminate(); code != 0 {
			t.Errorf("%s ends with %d", p.Name(), code)
		}
	}
	receiver.verify(t, versions)
	taken, first := receiver.count()
	t.Logf("%d events, %d faults, %d requests, %d repetitions", first, faults, receiver.requests, taken-first)
	dead, err := forwarder.Stream(ctx, wire.DefaultPrefix.DeadStream())
	if err != nil {
		t.Fatal(err)
	}
	if n := dead.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d events are given up", n)
	}
}

// forwarders returns what starts a process of lapse forward, as the role that deploy/ has for it.
func forwarders(t *testing.T, server *harness.NATS, url string) (start func(name string) *harness.Process) {
	t.Helper()
	password, secret := filepath.Join(t.TempDir(), "password"), secretFile(t)
	if err := os.WriteFile(password, []byte(harness.RolePassword("FORWARDER")), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(name string) *harness.Process {
		return harness.StartProcess(t, name, programs.Path(t, "lapse"), "forward", "orders", url, "--secret-file",
			secret, "--since", "1h", "--longest-wait", "1s",
			"--server", server.URL(), "--nats-user", "forwarder", "--nats-password-file", password,
			"--nats-inbox-prefix", "_INBOX.forwarder")
	}
}

// secretFile is a file with the secret of the webhooks.
func secretFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(webhookSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// nowhere is a URL at which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	return "http://" + harness.Address(harness.FreePort(t))
}

// verify verifies that each document's versions have come for the first time in order.
func (h *hook) verify(t *testing.T, versions int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for document, taken := range h.taken {
		next := 0
		for _, version := range taken {
			if version > next {
				t.Errorf("document %s: version %d comes before %d: %v", document, version, next, taken)
				break
			}
			if version == next {
				next++
			}
		}
		if next != versions {
			t.Errorf("document %s has %d versions, want %d", document, next, versions)
		}
	}
}

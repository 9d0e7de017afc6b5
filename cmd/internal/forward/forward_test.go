package forward

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute

// secret is that of the test vectors of Standard Webhooks.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestMain(m *testing.M) { harness.Main(m) }

func secrets(t *testing.T, lines ...string) Secrets {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := ReadSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSign: the test vector of Standard Webhooks; with two secrets there are two signatures, and either receiver
// takes the request.
func TestSign(t *testing.T) {
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))
	h, body := http.Header{}, []byte(`{"test": 2432232314}`)
	if err := secrets(t, secret, "", other).sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		body); err != nil {
		t.Fatal(err)
	}
	signature := h.Get("webhook-signature")
	h.Del("webhook-signature")
	want := http.Header{"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"}}
	if diff := cmp.Diff(want, h); diff != "" || !strings.HasPrefix(signature,
		"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,") {
		t.Errorf("signature %s, headers (-want +got):\n%s", signature, diff)
	}
	h.Set("webhook-signature", signature)
	for _, one := range []string{secret, other} {
		receiver, err := webhooks.NewWebhook(one)
		if err == nil {
			err = receiver.VerifyIgnoringTimestamp(body, h)
		}
		if err != nil {
			t.Errorf("the receiver with %s: %v", one, err)
		}
	}
}

// TestSecretsThatAreNotValid: a secret has 24 to 64 bytes in base64, and a file has one at least. The error tells the
// line, also behind empty ones.
func TestSecretsThatAreNotValid(t *testing.T) {
	for _, text := range []string{"", "\n", "whsec_short", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)),
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)), secret + "\n\nno"} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSecrets(file)
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
		if line := fmt.Sprintf("line %d is", 1+strings.Count(text, "\n")); text != "" && text != "\n" && !strings.Contains(
			err.Error(), line) {
			t.Errorf("%q: %v, want %s", text, err, line)
		}
	}
}

var expiry = event{data: []byte(`{"id":"a.b", "document":{"n":1.50}}`), header: nats.Header{
	"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/lapse/17/collections/orders"},
	"ce-subject": {"a%2Eb"},
	"ce-id":      {"orders/a%2Eb/7"}, "ce-time": {"2026-01-31T12:00:00.000Z"}, "content-type": {"application/json"},
	"ce-datacontenttype":   {"application/json"},
	"Nats-Expected-Stream": {"LAPSE_EVENTS"}, "Lapse-Target": {"mail.send"},
}}

// TestCloudEvent: an event in both modes of CloudEvents' binding of HTTP. The bytes of the data are unchanged.
func TestCloudEvent(t *testing.T) {
	header, body, err := expiry.request(false)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"datacontenttype":"application/json","id":"orders/a.b/7","lapsetarget":"mail.send",` +
		`"source":"/lapse/17/collections/orders","specversion":"1.0",` +
		`"subject":"a.b","time":"2026-01-31T12:00:00.000Z","type":"lapse.document.expired.v1","data":{"id":"a.b",` +
		` "document":{"n":1.50}}}`
	if string(body) != want || header.Get("Content-Type") != "application/cloudevents+json; charset=UTF-8" {
		t.Errorf("structured: %v\n%s", header, body)
	}
	header, body, err = expiry.request(true)
	if err != nil {
		t.Fatal(err)
	}
	wantHeader := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Type": {"lapse.document.expired.v1"}, "Ce-Source": {"/lapse/17/collections/orders"},
		"Ce-Subject": {"a%2Eb"},
		"Ce-Id":      {"orders/a%2Eb/7"}, "Ce-Time": {"2026-01-31T12:00:00.000Z"}, "Content-Type": {"application/json"},
		"Ce-Lapsetarget": {"mail.send"},
	}
	if diff := cmp.Diff(wantHeader, header); diff != "" || string(body) != string(expiry.data) {
		t.Errorf("binary: %s\n(-want +got):\n%s", body, diff)
	}
	if id := expiry.id(); id != "lapse/17/orders/a%2Eb/7" {
		t.Errorf("the webhook-id is %s", id)
	}
}

// TestJudge: what each answer means.
func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status        int
		retry         string
		ok, dead, all bool
		pause         time.Duration
	}{
		{status: 200, ok: true}, {status: 204,
			ok: true}, {status: 301}, {status: 400}, {status: 404}, {status: 410}, {status: 413, dead: true}, {status: 500},
		{status: 429, retry: "7", all: true, pause: 7 * time.Second},
		{status: 503, retry: "Sat, 31 Jan 2026 12:01:00 GMT", all: true, pause: time.Minute},
		{status: 503, retry: "Sat, 31 Jan 2026 11:01:00 GMT", all: true}, {status: 503, retry: "-5", all: true}, {status: 500,
			retry: "3", pause: 3 * time.Second},
		{status: 429, retry: "86400", all: true, pause: time.Hour},
	} {
		v := judge(c.status, c.retry, now)
		if (v.why == nil) != c.ok || v.dead != c.dead || v.halting != c.all || v.pause != c.pause || errors.Is(v.why,
			ErrGone) != (c.status == 410) {
			t.Errorf("%d, Retry-After %q: %+v", c.status, c.retry, v)
		}
	}
}

// TestCheckURL: without TLS only to this machine.
func TestCheckURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://example.com/hooks?a=b": true, "http://127.0.0.1:8080": true, "http://localhost/": true,
		"http://[::1]/":      true,
		"http://example.com": false, "http://10.0.0.1": false, "https://user:pw@example.com": false,
		"ftp://example.com": false, "example.com": false, "https://": false,
	} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// rig is a stream of events, and a receiver that a test tells what to answer.
type rig struct {
	js jetstream.JetStream
	c  *client.Client
	*httptest.Server
	opts Options

	mu      sync.Mutex
	answer  func(id string, n int, w http.ResponseWriter) // the n-th request for an id
	got     map[string]int
	order   []string // what was answered with 204, in order
	refused error    // by the signature
}

func newRig(t *testing.T, answer func(string, int, http.ResponseWriter)) *rig {
	t.Helper()
	url := natstest.Start(t, natstest.Options{})
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &rig{js: natstest.JetStream(t, nc), answer: answer, got: make(map[string]int)}
	from, to := wire.DefaultPrefix.EventTransform()
	if _, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.DefaultPrefix.EventsStream(), Subjects: wire.DefaultPrefix.EventSubjects(),
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: from, Destination: to},
	}); err != nil {
		t.Fatal(err)
	}
	if r.c, err = client.Connect(client.Options{Server: url, Timeout: limit}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.c.Close)
	r.Server = httptest.NewTLSServer(http.HandlerFunc(r.receive))
	t.Cleanup(r.Server.Close)
	r.opts = Options{
		URL: r.URL, Secrets: secrets(t,
			secret), LongestWait: 50 * time.Millisecond,
		Authorities: r.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		Messages:    client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0)), Once: true},
	}
	return r
}

// receive verifies the signature, and answers.
func (r *rig) receive(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	var receiver *webhooks.Webhook
	if err == nil {
		receiver, err = webhooks.NewWebhook(secret)
	}
	if err == nil {
		err = receiver.Verify(body, req.Header)
	}
	r.refused = errors.Join(r.refused, err)
	id := req.Header.Get("webhook-id")
	r.got[id]++
	answered := &answered{ResponseWriter: w}
	if r.answer(id, r.got[id], answered); answered.status == 0 {
		w.WriteHeader(http.StatusNoContent)
		r.order = append(r.order, id)
	}
}

// answered remembers the status.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) { a.status = status; a.ResponseWriter.WriteHeader(status) }

func (r *rig) event(t *testing.T, id, etag string) {
	t.Helper()
	msg := &nats.Msg{Subject: wire.DefaultPrefix.Expired("orders", id), Data: []byte(`{"id":"` + id + `"}`),
		Header: nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/lapse/17/collections/orders"},
			"ce-subject": {id}, "ce-id": {"orders/" + id + "/" + etag},
			"ce-time": {"2026-01-31T12:00:00.000Z"}, "ce-datacontenttype": {"application/json"},
			"Nats-Expected-Stream": {"LAPSE_EVENTS"},
		}}
	if _, err := r.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) run(t *testing.T) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	err := Run(ctx, r.c, wire.DefaultPrefix, r.opts)
	if r.refused != nil {
		t.Errorf("the receiver refuses a signature: %v", r.refused)
	}
	if ctx.Err() != nil {
		t.Error("it does not end")
	}
	return err
}

func (r *rig) letters(t *testing.T) (all []string) {
	t.Helper()
	err := ListDead(t.Context(), r.c, wire.DefaultPrefix, "test", func(l Letter) error {
		all = append(all, l.ID+": "+l.Reason)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestF1F2_Deliveries: what fails is tried again, in order per document; what is too large is a dead letter at once,
// and what fails for too long is one later. Dead letters can be sent again. A redirect is not followed.
func TestF1F2_Deliveries(t *testing.T) {
	t.Parallel()
	mended := false
	r := newRig(t, func(id string, n int, w http.ResponseWriter) {
		switch {
		case id == "lapse/17/orders/fails/1" && n < 3:
			w.WriteHeader(500)
		case id == "lapse/17/orders/moved/1" && n == 1:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(307)
		case id == "lapse/17/orders/large/1" && !mended:
			w.WriteHeader(413)
		case id == "lapse/17/orders/never/1":
			w.WriteHeader(400)
		case strings.HasSuffix(id, "large/2") && !mended, strings.HasSuffix(id, "never/2"):
			t.Errorf("%s comes, and the one before it is a dead letter", id)
		}
	})
	registry := prometheus.NewRegistry()
	r.opts.GiveUpAfter, r.opts.Metrics = 2*time.Second, registry
	for _, id := range []string{"fails", "moved", "large", "never"} {
		r.event(t, id, "1")
		r.event(t, id, "2")
	}
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	first := make(map[string]bool)
	for _, id := range r.order {
		if strings.HasSuffix(id, "/2") && !first[strings.TrimSuffix(id, "2")+"1"] {
			t.Errorf("%s comes before the one before it: %v", id, r.order)
		}
		first[id] = true
	}
	if n := r.got["lapse/17/orders/fails/1"]; n != 3 || len(first) != 4 {
		t.Errorf("%d attempts, %d events: want 3 and 4", n, len(first))
	}
	want := []string{
		"lapse/17/orders/large/1: the receiver answers 413", "lapse/17/orders/large/2: " + errParked.Error(),
		"lapse/17/orders/never/1: the receiver answers 400", "lapse/17/orders/never/2: " + errParked.Error(),
	}
	letters := r.letters(t)
	if slices.Sort(letters); !slices.Equal(letters, want) {
		t.Errorf("dead letters %v, want %v", letters, want)
	}
	attempts := 0.0
	for _, n := range r.got {
		attempts += float64(n)
	}
	for name, want := range map[string]float64{"lapse_forward_delivered_total": 4, "lapse_forward_dead_total": 4,
		"lapse_forward_held": 0, "lapse_forward_attempt_seconds": attempts} {
		if got := figure(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	r.mu.Lock()
	mended = true
	r.mu.Unlock()
	r.opts.Metrics = nil
	sent, left, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts)
	if err != nil || sent != 2 || left != 2 {
		t.Errorf("sent again: %d, left %d, %v", sent, left, err)
	}
	if diff := cmp.Diff(want[2:], r.letters(t)); diff != "" {
		t.Errorf("dead letters that are left (-want +got):\n%s", diff)
	}
}

// TestF2_ParkedDocuments: documents that the receiver refuses are more than there is room for. After some attempts they
// are parked, and all others get through. Events of a parked document go behind its dead letter, also in another
// process, and when that was sent again the next one is posted.
//
// It fails if others wait until the refused documents are given up, or if an event overtakes its document's dead
// letter.
func TestF2_ParkedDocuments(t *testing.T) {
	t.Parallel()
	mended := false
	r := newRig(t, func(id string, _ int, w http.ResponseWriter) {
		if strings.Contains(id, "/bad") && !mended {
			w.WriteHeader(500)
		}
	})
	r.opts.Patience, r.opts.LongestWait = 200*time.Millisecond, 10*time.Millisecond
	r.opts.Messages.Pending = client.Stripes
	const documents = 20 // of each kind, and a stripe has room for one event
	for version := 1; version <= 2; version++ {
		for n := range documents {
			r.event(t, fmt.Sprint("bad", n), fmt.Sprint(version))
		}
	}
	for n := range documents {
		r.event(t, fmt.Sprint("good", n), "1")
	}
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	if len(r.order) != documents {
		t.Errorf("taken %v", r.order)
	}
	r.event(t, "bad0", "3")
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]string)
	for _, letter := range r.letters(t) {
		id, _, _ := strings.Cut(letter, ":")
		versions[id[:len(id)-1]] += id[len(id)-1:]
	}
	want := make(map[string]string)
	for n := range documents {
		want[fmt.Sprintf("lapse/17/orders/bad%d/", n)] = "12"
	}
	want["lapse/17/orders/bad0/"] = "123"
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Errorf("dead letters, in their order (-want +got):\n%s", diff)
	}
	r.mu.Lock()
	mended, r.order = true, nil
	r.mu.Unlock()
	if sent, left, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil || sent != 2*documents+1 ||
		left != 0 {
		t.Errorf("sent again: %d, left %d, %v", sent, left, err)
	}
	r.event(t, "bad0", "4")
	if err := r.run(t); err != nil || r.order[len(r.order)-1] != "lapse/17/orders/bad0/4" {
		t.Errorf("%v, taken %v", err, r.order)
	}
}

// TestDeadLettersHaveNoID: whoever knows all of an event cannot keep its dead letter out of the stream.
//
// It fails if the letter has a message id that follows from the event.
func TestDeadLettersHaveNoID(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ string, _ int, w http.ResponseWriter) { w.WriteHeader(413) })
	r.event(t, "a", "1")
	if err := r.run(t); err != nil { // which makes the stream
		t.Fatal(err)
	}
	for _, id := range []string{"lapse.dead.test/lapse/17/orders/b/1", "lapse/17/orders/b/1", "orders/b/1"} {
		if _, err := r.js.Publish(t.Context(), wire.DefaultPrefix.Dead("other", "x"), nil,
			jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	r.event(t, "b", "1")
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	if all := r.letters(t); len(all) != 2 {
		t.Errorf("dead letters %v", all)
	}
	letter, err := r.js.Stream(t.Context(), wire.DefaultPrefix.DeadStream())
	if err != nil {
		t.Fatal(err)
	}
	last, err := letter.GetMsg(t.Context(), letter.CachedInfo().State.LastSeq)
	if err != nil || last.Header.Get(jetstream.MsgIDHeader) != "" {
		t.Errorf("the last letter is %v, %v", last, err)
	}
}

// TestF1_EndsCleanly: at the end a request under way is not broken off, and its event is done; an event that waits
// for another attempt is given back, and another process does not wait for it as for that of one that has died.
func TestF1_EndsCleanly(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	failed := make(chan struct{}, 1)
	r := newRig(t, func(id string, n int, w http.ResponseWriter) {
		switch {
		case n > 1:
		case strings.HasSuffix(id, "fails/1"):
			w.WriteHeader(500)
			failed <- struct{}{}
		default:
			<-failed
			stop()
		}
	})
	r.opts.Messages.Once, r.opts.Messages.AckWait, r.opts.LongestWait = false, limit, time.Hour
	r.event(t, "fails", "1")
	first := r.answer
	r.answer = func(id string, n int, w http.ResponseWriter) {
		if first(id, n, w); n == 1 && strings.HasSuffix(id, "fails/1") {
			r.event(t, "lasts", "1")
		}
	}
	if err := Run(ctx, r.c, wire.DefaultPrefix, r.opts); err != nil || len(r.order) != 1 {
		t.Errorf("%v, taken %v", err, r.order)
	}
	r.opts.Messages.Once = true
	began := time.Now()
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	if want := []string{"lapse/17/orders/lasts/1", "lapse/17/orders/fails/1"}; !slices.Equal(r.order, want) ||
		time.Since(began) > limit/2 {
		t.Errorf("taken %v after %s, want %v", r.order, time.Since(began), want)
	}
}

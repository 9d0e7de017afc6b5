package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute // on every wait

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(child.Goroutine)) }

// connect runs a NATS server for the test. It returns a connection for the service and one for
// its client.
func connect(t *testing.T, maxPayload int32) (forService, forClient *nats.Conn) {
	t.Helper()
	srv := inprocess.Start(t, &server.Options{MaxPayload: maxPayload})
	dial := func() *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL(), nats.Timeout(limit))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	return dial(), dial()
}

// start starts a service for a reader.
func start(t *testing.T, reader service.Reader, opts service.Options) (*service.Service, *nats.Conn) {
	t.Helper()
	nc, client := connect(t, 64<<10)
	svc, err := service.Start(nc, reader, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(svc.Stop)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return svc, client
}

func request(t *testing.T, nc *nats.Conn, subject, body string) *nats.Msg {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), limit)
	if err != nil {
		t.Fatalf("request %s: %v", subject, err)
	}
	return msg
}

func TestGet(t *testing.T) {
	expires := wire.Time(1_700_000_060_000)
	_, nc := start(t, fake{get: func(_ context.Context, collection, id string) (sink.Document, error) {
		if collection != "orders" {
			return sink.Document{}, fmt.Errorf("get %s/%s: %w", collection, id, sink.ErrNotFound)
		}
		doc := sink.Document{ID: id, Etag: 17, Ts: 1_700_000_000_000, Body: []byte(`{ "total" : 9 }`)}
		if id == "a.b c" {
			doc.ExpiresAt = &expires
		}
		return doc, nil
	}}, service.Options{})

	msg := request(t, nc, wire.DefaultPrefix.ReadGet("orders", "a.b c"), "")
	want := nats.Header{"Lapse-Etag": {"17"}, "Lapse-Ts": {"2023-11-14T22:13:20.000Z"},
		"Lapse-Expires-At": {"2023-11-14T22:14:20.000Z"}}
	if diff := cmp.Diff(want, msg.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if got := string(msg.Data); got != `{ "total" : 9 }` {
		t.Errorf("body %s: want its bytes unchanged", got)
	}

	msg = request(t, nc, "lapse.read.get.orders.x", "{}")
	if _, ok := msg.Header[wire.HeaderExpiresAt]; ok {
		t.Errorf("a document that never expires has %s %q", wire.HeaderExpiresAt, msg.Header.Get(wire.HeaderExpiresAt))
	}
}

func TestListKeepsDocumentsAsTheyAre(t *testing.T) {
	expires := wire.Time(60_000)
	var asked sink.ListOptions
	_, nc := start(t, fake{list: func(_ context.Context, _ string, opts sink.ListOptions) (sink.Page, error) {
		asked = opts
		return sink.Page{Documents: []sink.Document{
			{ID: "a\"<\n\u2028é", Etag: 3, Ts: 1, ExpiresAt: &expires, Body: []byte(`{"a": "<&>",  "b":1.0}`)},
			{ID: "b", Etag: 4, Ts: 2, Body: []byte(`{}`)},
		}, Continuation: `next"`}, nil
	}}, service.Options{})

	msg := request(t, nc, "lapse.read.list.orders", `{"limit":2,"continuation":"c"}`)
	var got wire.ListReply
	if err := json.Unmarshal(msg.Data, &got); err != nil {
		t.Fatalf("%s: %v", msg.Data, err)
	}
	want := wire.ListReply{Continuation: `next"`, Documents: []wire.Document{
		{ID: "a\"<\n\u2028é", Etag: 3, Ts: 1, ExpiresAt: &expires, Document: json.RawMessage(`{"a": "<&>",  "b":1.0}`)},
		{ID: "b", Etag: 4, Ts: 2, Document: json.RawMessage(`{}`)},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	request(t, nc, "lapse.read.list.orders", `{"order":"deadline","until":"1970-01-01T01:01:00+01:00"}`)
	if asked.Order != wire.ByDeadline || asked.Until == nil || *asked.Until != expires {
		t.Errorf("asked for %+v", asked)
	}
	if request(t, nc, "lapse.read.list.orders", `{"prefix":"p"}`); asked.Prefix != "p" {
		t.Errorf("asked for %+v", asked)
	}
	request(t, nc, "lapse.read.list.orders", `{"order":"deadline","within":"2d","continuation":"c","limit":2}`)
	if asked.Within != 48*time.Hour || asked.Until != nil {
		t.Errorf("asked for %+v", asked)
	}
	if asked.Limit != 2 || asked.Continuation != "c" || asked.MaxBytes <= 0 || asked.MaxBytes >= 64<<10 {
		t.Errorf("asked for %+v", asked)
	}

	request(t, nc, "lapse.read.list.orders", "")
	if asked.Limit != 0 || asked.Continuation != "" {
		t.Errorf("an empty body asked for %+v: want the defaults", asked)
	}
}

func TestListFitsTheMaximumPayload(t *testing.T) {
	// Ids of control characters: six bytes of JSON for each.
	var docs []sink.Document
	for i := range 900 {
		docs = append(docs, sink.Document{ID: strings.Repeat("\x01", 200) + fmt.Sprint(i), Etag: 1, Ts: 1,
			Body: []byte(`{"n":"` + strings.Repeat("x", i%100) + `"}`)})
	}
	_, nc := start(t, fake{list: func(_ context.Context, _ string, opts sink.ListOptions) (sink.Page, error) {
		from := 0
		if opts.Continuation != "" {
			_, _ = fmt.Sscan(opts.Continuation, &from)
		}
		until := min(len(docs), from+opts.Limit)
		page := sink.Page{Documents: docs[from:until]}
		if until < len(docs) {
			page.Continuation = fmt.Sprint(until)
		}
		return page, nil
	}}, service.Options{})

	var got []wire.Document
	req := wire.ListRequest{Limit: wire.MaxListLimit}
	pages := 0
	for {
		body, _ := json.Marshal(req)
		msg := request(t, nc, "lapse.read.list.orders", string(body))
		var reply wire.ListReply
		if err := json.Unmarshal(msg.Data, &reply); err != nil {
			t.Fatalf("%v %v", msg.Header, err)
		}
		got = append(got, reply.Documents...)
		pages++
		if reply.Continuation == "" {
			break
		}
		req.Continuation = reply.Continuation
	}
	if len(got) != len(docs) {
		t.Fatalf("got %d documents of %d", len(got), len(docs))
	}
	for i := range got {
		if got[i].ID != docs[i].ID {
			t.Fatalf("document %d is %q: want %q", i, got[i].ID, docs[i].ID)
		}
	}
	if fullest := 900 * 1300 / (64 << 10); pages > 2*fullest {
		t.Errorf("%d pages: they are not filled", pages)
	}
}

func TestAnAnswerOverTheMaximumPayloadIsAnError(t *testing.T) {
	_, nc := start(t, fake{get: func(context.Context, string, string) (sink.Document, error) {
		return sink.Document{Etag: 1, Body: make([]byte, 65<<10)}, nil
	}}, service.Options{})
	wantFailure(t, request(t, nc, "lapse.read.get.orders.1", ""), 413, "66560 bytes", "65536", "max_payload")
}

func TestCountForecastConfigCollections(t *testing.T) {
	ttl := int32(60)
	_, nc := start(t, fake{
		count: func(context.Context, string) (wire.CountReply, error) {
			return wire.CountReply{Live: 2, Expired: 1}, nil
		},
		forecast: func(_ context.Context, _ string, opts sink.ForecastOptions) (wire.ForecastReply, error) {
			reply := wire.ForecastReply{Buckets: []wire.Bucket{{From: wire.Time(opts.Buckets),
				Until: wire.Time(opts.Within.Milliseconds()), Count: 5}}}
			if opts.Default != nil {
				reply.AtOnce = new(int64(*opts.Default))
			}
			return reply, nil
		},
		collections: func(_ context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
			return wire.CollectionsReply{Collections: []wire.Collection{{Name: "a", IndexingMode: wire.Lazy,
				Live: int64(opts.Limit)}}, Continuation: opts.Continuation}, nil
		},
		config: func(_ context.Context, collection string) (wire.Config, error) {
			if collection == "off" {
				return wire.Config{IndexingMode: wire.NoIndex}, nil
			}
			return wire.Config{DefaultTTL: &ttl, IndexingMode: wire.Consistent}, nil
		},
	}, service.Options{Settled: func(context.Context) (wire.SettledReply, error) {
		return wire.SettledReply{Settled: 17},
			nil
	}})

	for _, c := range []struct{ subject, body, want string }{
		{"lapse.read.count.orders", "", `{"live":2,"expired":1}`},
		{"lapse.read.count.orders", " {} ", `{"live":2,"expired":1}`},
		{"lapse.read.forecast.orders", "",
			`{"buckets":[{"from":"1970-01-01T00:00:00.000Z","until":"1970-01-01T00:00:00.000Z","count":5}]}`},
		{"lapse.read.forecast.orders", `{"buckets":7,"within":"90s"}`,
			`{"buckets":[{"from":"1970-01-01T00:00:00.007Z","until":"1970-01-01T00:01:30.000Z","count":5}]}`},
		{"lapse.read.forecast.orders", `{"within":"7d"}`,
			`{"buckets":[{"from":"1970-01-01T00:00:00.000Z","until":"1970-01-08T00:00:00.000Z","count":5}]}`},
		{"lapse.read.forecast.orders", `{"defaultTtl":null}`,
			`{"buckets":[{"from":"1970-01-01T00:00:00.000Z","until":"1970-01-01T00:00:00.000Z","count":5}],"atOnce":0}`},
		{"lapse.read.forecast.orders", `{"defaultTtl":-1}`,
			`{"buckets":[{"from":"1970-01-01T00:00:00.000Z","until":"1970-01-01T00:00:00.000Z","count":5}],"atOnce":-1}`},
		{"lapse.read.forecast.orders", `{"defaultTtl":60}`,
			`{"buckets":[{"from":"1970-01-01T00:00:00.000Z","until":"1970-01-01T00:00:00.000Z","count":5}],"atOnce":60}`},
		{"lapse.read.collections", "",
			`{"collections":[{"name":"a","defaultTtl":null,"indexingMode":"lazy","live":0,"expired":0}]}`},
		{"lapse.read.collections", `{"limit":3,"continuation":"x"}`,
			`{"collections":[{"name":"a","defaultTtl":null,"indexingMode":"lazy","live":3,"expired":0}],"continuation":"x"}`},
		{"lapse.read.settled.orders", "", `{"settled":17}`},
		{"lapse.read.config.orders", "", `{"defaultTtl":60,"indexingMode":"consistent"}`},
		{"lapse.read.config.off", "", `{"defaultTtl":null,"indexingMode":"none"}`},
	} {
		if got := string(request(t, nc, c.subject, c.body).Data); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.subject, c.body, got, c.want)
		}
	}
}

func wantFailure(t *testing.T, msg *nats.Msg, code int, parts ...string) {
	t.Helper()
	if got := msg.Header.Get(micro.ErrorCodeHeader); got != fmt.Sprint(code) {
		t.Errorf("%s: code %q (%s), want %d", msg.Subject, got, msg.Header.Get(micro.ErrorHeader), code)
	}
	for _, part := range parts {
		if got := msg.Header.Get(micro.ErrorHeader); !strings.Contains(got, part) {
			t.Errorf("the error is %q: want it to say %q", got, part)
		}
	}
}

func TestG8_BadRequestsSayWhatIsAllowed(t *testing.T) {
	_, nc := start(t, fake{}, service.Options{}) // none of them reaches the reader
	long := strings.Repeat("x", 129)
	for _, c := range []struct {
		subject, body string
		parts         []string
	}{
		{"get.orders.a.b", "", []string{"3 tokens", "lapse.read.get.<collection>.<id>", "%2E"}},
		{"get.orders", "", []string{"1 tokens", "lapse.read.get.<collection>.<id>"}},
		{"get.orders.%2e", "", []string{"0-9 A-F"}},
		{"get.orders.a!b", "", []string{"%21"}},
		{"get.orders.%FF", "", []string{"UTF-8"}},
		{"get.or!ders.a", "", []string{"A-Z a-z 0-9 _ -"}},
		{"get." + long + ".a", "", []string{"1 to 128"}},
		{"get.orders.a", `{"limit":1}`, []string{`"limit"`, "an object with renew"}},
		{"list.orders.a", "", []string{"lapse.read.list.<collection>"}},
		{"count.orders.a", "", []string{"lapse.read.count.<collection>"}},
		{"forecast.orders.a", "", []string{"lapse.read.forecast.<collection>"}},
		{"config.orders.a", "", []string{"lapse.read.config.<collection>"}},
		{"list.orders", `[]`, []string{"not a JSON object", "limit, continuation"}},
		{"list.orders", `{"limit":`, []string{"not valid JSON", "limit, continuation"}},
		{"list.orders", `{} {}`, []string{"not valid JSON"}},
		{"list.orders", `{"limit":1,"sort":"asc"}`, []string{`"sort"`, "limit, continuation, order, until, within, prefix"}},
		{"list.orders", `{"order":1}`, []string{"order (a number) is not valid", `use "deadline"`}},
		{"list.orders", `{"order":"deadline","until":"soon"}`, []string{`until "soon" is not valid`, "RFC 3339"}},
		{"list.orders", `{"order":"deadline","until":5}`, []string{"until (a number)", "RFC 3339"}},
		{"list.orders", `{"order":"deadline","within":"0s"}`, []string{"over 0"}},
		{"list.orders", `{"order":"deadline","within":60}`, []string{"within (a number) is not valid", `"90s"`}},
		{"list.orders", `{"prefix":7}`, []string{"prefix (a number)", "a string"}},
		{"list.orders", `{"Limit":1}`, []string{`"Limit"`, "limit, continuation"}},
		{"list.orders", `{"limit":0}`, []string{"limit 0 is not valid: use a whole number from 1 to 1000"}},
		{"list.orders", `{"limit":1001}`, []string{"limit 1001 is not valid", "1 to 1000"}},
		{"list.orders", `{"limit":-1}`, []string{"1 to 1000"}},
		{"list.orders", `{"limit":1.5}`, []string{"number 1.5", "1 to 1000"}},
		{"list.orders", `{"limit":"1"}`, []string{"string", "1 to 1000"}},
		{"list.orders", `{"continuation":1}`, []string{"continuation (a number) is not valid", "a string"}},
		{"count.orders", `null`, []string{"not a JSON object"}},
		{"config.orders", `{"x":1}`, []string{`"x"`}},
		{"forecast.orders", `{"buckets":0}`, []string{"1 to 1000"}},
		{"forecast.orders", `{"buckets":1001}`, []string{"1 to 1000"}},
		{"forecast.orders", `{"within":"1 hour"}`, []string{`"1 hour"`, `"90s"`}},
		{"forecast.orders", `{"within":"0s"}`, []string{"over 0"}},
		{"forecast.orders", `{"within":"-1h"}`, []string{"over 0"}},
		{"forecast.orders", `{"within":""}`, []string{"over 0"}},
		{"forecast.orders", `{"within":3600}`, []string{"within (a number) is not valid", `"90s"`}},
		{"forecast.orders", `{"defaultTtl":0}`, []string{"defaultTtl", "0", "from 1 to 2147483647"}},
		{"forecast.orders", `{"defaultTtl":1.5}`, []string{"defaultTtl", "1.5", "from 1 to 2147483647"}},
		{"forecast.orders", `{"defaultTtl":"60"}`, []string{"defaultTtl", "from 1 to 2147483647"}},
		{"forecast.orders", `{"default":60}`, []string{`"default"`, "buckets, within, defaultTtl"}},
		{"collections", `[]`, []string{"not a JSON object", "limit, continuation"}},
		{"collections", `{"limit":1001}`, []string{"limit 1001 is not valid", "1 to 1000"}},
	} {
		t.Run(c.subject+c.body, func(t *testing.T) {
			wantFailure(t, request(t, nc, "lapse.read."+c.subject, c.body), 400, c.parts...)
		})
	}
}

type netError struct{ timeout bool }

func (e netError) Error() string { return "dial tcp: nobody home" }
func (e netError) Timeout() bool { return e.timeout }

func TestErrorsOfTheReaderGetTheirCode(t *testing.T) {
	var err error
	_, nc := start(t, fake{get: func(context.Context, string, string) (sink.Document, error) {
		return sink.Document{}, err
	}}, service.Options{})
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{fmt.Errorf("get orders/1: %w", sink.ErrNotFound), 404, "get orders/1"},
		{fmt.Errorf("shard 3: %w", sink.ErrUnavailable), 503, "shard 3"},
		{fmt.Errorf("%w: Redis has the documents of 16 shards", sink.ErrForeign), 503, "16 shards"},
		{fmt.Errorf("shard 3: %w: it has lost something", sink.ErrUnavailable), 503, "shard 3"},
		{fmt.Errorf("%w: the continuation is not one of ours", sink.ErrInvalidRequest), 400, "continuation"},
		{fmt.Errorf("%w: nonsense", wire.ErrInvalidName), 400, "nonsense"},
		{fmt.Errorf("read: %w", io.EOF), 503, "Redis is not available"},
		{fmt.Errorf("read: %w", netError{timeout: true}), 503, "did not answer"},
		{context.DeadlineExceeded, 503, "did not answer"},
		{errors.New("the header of the document is 3 bytes long"), 500, "3 bytes"},
		{errors.New("two\r\nlines"), 500, "lines"},
	} {
		err = c.err
		wantFailure(t, request(t, nc, "lapse.read.get.orders.1", ""), c.code, c.text)
	}
}

func TestARequestHasADeadline(t *testing.T) {
	_, nc := start(t, fake{get: func(ctx context.Context, _, _ string) (sink.Document, error) {
		<-ctx.Done()
		return sink.Document{}, fmt.Errorf("get: %w", ctx.Err())
	}}, service.Options{Timeout: 30 * time.Millisecond})
	wantFailure(t, request(t, nc, "lapse.read.get.orders.1", ""), 503, "did not answer in time")
}

func TestConcurrencyIsBoundedAndNothingIsDropped(t *testing.T) {
	const bound, requests = 4, 100
	var mu sync.Mutex
	var now, most int
	full, release := make(chan struct{}), make(chan struct{})
	_, nc := start(t, fake{count: func(context.Context, string) (wire.CountReply, error) {
		mu.Lock()
		now++
		if most = max(most, now); now == bound && most == bound {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-release
		mu.Lock()
		now--
		mu.Unlock()
		return wire.CountReply{Live: 1}, nil
	}}, service.Options{Concurrency: bound})

	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range requests {
		if err := nc.PublishRequest("lapse.read.count.orders", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-full:
	case <-time.After(limit):
		t.Fatal("requests of one endpoint are not answered side by side")
	}
	close(release)
	for i := range requests {
		msg, err := replies.NextMsg(limit)
		if err != nil {
			t.Fatalf("reply %d: %v", i, err)
		}
		if string(msg.Data) != `{"live":1,"expired":0}` {
			t.Fatalf("reply %d: %v %s", i, msg.Header, msg.Data)
		}
	}
	if most != bound {
		t.Errorf("%d requests at a time: want %d", most, bound)
	}
}

// TestStopAnswersWhatHasCome: at the end each request that has arrived gets its answer.
//
// It fails if the end ends the context of one of them.
func TestStopAnswersWhatHasCome(t *testing.T) {
	const requests = 20
	started, release := make(chan struct{}, requests), make(chan struct{})
	svc, nc := start(t, fake{count: func(ctx context.Context, _ string) (wire.CountReply, error) {
		started <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		select {
		case <-time.After(20 * time.Millisecond): // as long as an answer takes
		case <-ctx.Done():
		}
		return wire.CountReply{Live: 1}, ctx.Err()
	}}, service.Options{Concurrency: 2, Timeout: limit})

	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range requests {
		if err := nc.PublishRequest("lapse.read.count.orders", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // the server has them all
		t.Fatal(err)
	}
	<-started
	stopped := make(chan struct{})
	go func() { svc.Stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Fatal("Stop did not wait for the requests in flight")
	case <-started:
	}
	close(release)
	select {
	case <-stopped:
	case <-time.After(limit):
		t.Fatal("Stop does not return")
	}
	for i := range requests {
		if msg, err := replies.NextMsg(limit); err != nil || len(msg.Data) == 0 ||
			msg.Header.Get(micro.ErrorCodeHeader) != "" {
			t.Fatalf("reply %d: %v %v", i, msg, err)
		}
	}
	if _, err := nc.Request("lapse.read.count.orders", nil, limit); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request after Stop: %v, want no responders", err)
	}
	svc.Stop() // twice is fine
}

func TestStopEndsRequestsThatHang(t *testing.T) {
	started := make(chan struct{})
	svc, nc := start(t, fake{count: func(ctx context.Context, _ string) (wire.CountReply, error) {
		close(started)
		<-ctx.Done()
		return wire.CountReply{}, ctx.Err()
	}}, service.Options{Timeout: 50 * time.Millisecond})
	reply := make(chan *nats.Msg, 1)
	go func() {
		msg, _ := nc.Request("lapse.read.count.orders", nil, limit)
		reply <- msg
	}()
	<-started
	svc.Stop()
	if msg := <-reply; msg == nil {
		t.Error("no answer")
	} else {
		wantFailure(t, msg, 503)
	}
}

// TestItIsAMicroService: the service answers PING, INFO and STATS as NATS services do, also
// where they are sent to all services, to those of its name, or to its instance alone.
func TestItIsAMicroService(t *testing.T) {
	_, nc := start(t, fake{}, service.Options{Prefix: "acme", Version: "1.2.3"})
	var ping micro.Ping
	ask := func(subject string, into any) {
		t.Helper()
		if err := json.Unmarshal(request(t, nc, subject, "").Data, into); err != nil {
			t.Fatal(err)
		}
	}
	ask("$SRV.PING.lapse", &ping)
	want := micro.ServiceIdentity{Name: "lapse", ID: ping.ID, Version: "1.2.3",
		Metadata: map[string]string{"prefix": "acme", "shards": "1"}}
	for _, whom := range []string{"", ".lapse", ".lapse." + ping.ID} {
		var ping micro.Ping
		ask("$SRV.PING"+whom, &ping)
		var info micro.Info
		ask("$SRV.INFO"+whom, &info)
		var stats micro.Stats
		ask("$SRV.STATS"+whom, &stats)
		for kind, got := range map[string]micro.ServiceIdentity{micro.PingResponseType: ping.ServiceIdentity,
			micro.InfoResponseType: info.ServiceIdentity, micro.StatsResponseType: stats.ServiceIdentity} {
			if diff := cmp.Diff(want, got); diff != "" || got.ID == "" {
				t.Errorf("%s, %s: identity (-want +got):\n%s", whom, kind, diff)
			}
		}
		if ping.Type != micro.PingResponseType || info.Type != micro.InfoResponseType ||
			stats.Type != micro.StatsResponseType || info.Description == "" || stats.Started.IsZero() {
			t.Errorf("%s: %+v, %+v, %+v", whom, ping, info, stats)
		}
		var subjects, usage, counted []string
		for i, e := range info.Endpoints {
			subjects, usage = append(subjects, e.Subject), append(usage, e.Metadata["subject"])
			if e.QueueGroup != "q" || stats.Endpoints[i].QueueGroup != "q" || stats.Endpoints[i].Name != e.Name {
				t.Errorf("endpoint %+v, %+v", e, stats.Endpoints[i])
			}
			counted = append(counted, stats.Endpoints[i].Subject)
		}
		all := []string{"acme.read.get.>", "acme.read.list.>", "acme.read.query.>", "acme.read.count.>",
			"acme.read.forecast.>", "acme.read.config.>", "acme.read.collections", "acme.read.settled.>"}
		if diff := cmp.Diff(all, subjects) + cmp.Diff(all, counted); diff != "" {
			t.Errorf("subjects (-want +got):\n%s", diff)
		}
		if usage[0] != "acme.read.get.<collection>.<id>" || usage[6] != "acme.read.collections" {
			t.Errorf("usage %q", usage)
		}
	}
}

// TestStatisticsAreTrue: the statistics of an endpoint count each request that was answered,
// although many are answered at a time. A client that has an answer finds it counted.
//
// Goes red if the service counts requests when it dispatches them, or after the answer.
func TestStatisticsAreTrue(t *testing.T) {
	const requests, fail = 60, 20
	const takes = 20 * time.Millisecond
	var n atomic.Int64
	_, nc := start(t, fake{count: func(ctx context.Context, _ string) (wire.CountReply, error) {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		<-timer.C
		if n.Add(1) <= fail {
			return wire.CountReply{}, sink.ErrUnavailable
		}
		return wire.CountReply{}, nil
	}}, service.Options{})
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if _, err := nc.Request("lapse.read.count.orders", nil, limit); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	request(t, nc, "lapse.read.count.or!ders", "") // the last error is of the last request
	var stats micro.Stats
	if err := json.Unmarshal(request(t, nc, "$SRV.STATS.lapse", "").Data, &stats); err != nil {
		t.Fatal(err)
	}
	for _, e := range stats.Endpoints {
		if e.Name != "count" {
			if e.NumRequests+e.NumErrors > 0 || e.ProcessingTime > 0 {
				t.Errorf("nobody asked %+v", e)
			}
			continue
		}
		if e.NumRequests != requests+1 || e.NumErrors != fail+1 || !strings.HasPrefix(e.LastError, "400:") ||
			e.ProcessingTime < requests*takes || e.AverageProcessingTime != e.ProcessingTime/(requests+1) {
			t.Errorf("of %d requests that took %s each, %d of which failed, the statistics say %+v", requests+1, takes, fail+1,
				e)
		}
	}
}

func TestStartValidates(t *testing.T) {
	nc, _ := connect(t, 0)
	for _, opts := range []service.Options{{Prefix: "a.b"}, {Concurrency: -1}, {Timeout: -1}, {Version: "one"}} {
		if svc, err := service.Start(nc, fake{}, opts); err == nil {
			svc.Stop()
			t.Errorf("%+v: no error", opts)
		}
	}
	nc.Close()
	if svc, err := service.Start(nc, fake{}, service.Options{}); !errors.Is(err, nats.ErrConnectionClosed) {
		svc.Stop()
		t.Errorf("on a closed connection: %v", err)
	}
}

// brokenConn is a connection of which the other end is gone: it breaks after some requests.
type brokenConn struct {
	net.Conn
	writes int
}

func (c *brokenConn) Write(b []byte) (int, error) {
	if c.writes--; c.writes < 0 {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	return c.Conn.Write(b)
}

// Whatever go-redis makes of a connection that breaks, in its handshake or after, it is no fault
// of lapse: clients try again.
func TestABrokenConnectionIsUnavailable(t *testing.T) {
	mini := miniredis.RunT(t)
	for writes := range 4 {
		client := redis.NewClient(&redis.Options{
			MaxRetries: -1,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", mini.Addr())
				return &brokenConn{conn, writes}, err
			},
		})
		var err error
		for range 5 { // a connection is used again until it breaks
			if err = client.Get(t.Context(), "key").Err(); err != nil && !errors.Is(err, redis.Nil) {
				break
			}
		}
		if code, text := service.StatusOf(fmt.Errorf("read shard 6: %w", err)); code != wire.StatusUnavailable {
			t.Errorf("after %d requests: %d %s", writes, code, text)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

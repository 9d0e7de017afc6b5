package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// asyncAPI is the description of the messages, as lapse has it.
type asyncAPI struct {
	AsyncAPI string `json:"asyncapi"`
	Info     struct{ Title, Version string }
	Channels map[string]struct {
		Address  *string
		Messages map[string]struct {
			Ref string `json:"$ref"`
		}
	}
	Operations map[string]struct {
		Channel struct {
			Ref string `json:"$ref"`
		}
		Reply *struct {
			Channel struct {
				Ref string `json:"$ref"`
			}
			Address *struct{ Location string }
		}
	}
	Components struct {
		Schemas  map[string]json.RawMessage
		Messages map[string]struct {
			ContentType string
			Headers     json.RawMessage
			Examples    []struct{ Payload json.RawMessage }
		}
	}

	compiler *jsonschema.Compiler
	seen     map[string]int // messages, by channel and name
}

func readAsyncAPI(t *testing.T, r *rig) *asyncAPI {
	t.Helper()
	root := *r
	root.base = strings.TrimSuffix(r.base, "/v1")
	text := root.raw("GET", "/asyncapi.json").want(t, 200)
	text.header(t, "Content-Type", "application/json")
	d := &asyncAPI{compiler: jsonschema.NewCompiler(), seen: map[string]int{}}
	if err := json.Unmarshal([]byte(text.body), d); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text.body))
	if err != nil {
		t.Fatal(err)
	}
	d.compiler.DefaultDraft(jsonschema.Draft7) // that of AsyncAPI
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("lapse:asyncapi", doc); err != nil {
		t.Fatal(err)
	}
	return d
}

// invalid returns why a value is not as a schema says.
func (d *asyncAPI) invalid(value any, at string) error {
	s, err := d.compiler.Compile("lapse:asyncapi#/" + at)
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// channel is the channel of a subject, or that of a reply; empty if there is none.
func (d *asyncAPI) channel(subject string) string {
	for name, c := range d.Channels {
		if c.Address == nil {
			continue
		}
		pattern := strings.NewReplacer(`\{collection\}`, "[^.]+", `\{id\}`, "[^.]+", `\{target\}`,
			".+").Replace(regexp.QuoteMeta(*c.Address))
		if regexp.MustCompile("^" + pattern + "$").MatchString(subject) {
			return name
		}
	}
	return ""
}

// check returns why a message is none of a channel.
func (d *asyncAPI) check(channel string, m *nats.Msg) (err error) {
	for name := range d.Channels[channel].Messages {
		if err = d.message(name, m); err == nil {
			d.seen[channel+" "+name]++
			return nil
		}
	}
	return err
}

func (d *asyncAPI) message(name string, m *nats.Msg) error {
	at := "components/messages/" + name
	described := d.Components.Messages[name]
	header := map[string]any{}
	for name, values := range m.Header {
		header[name] = values[0]
	}
	if described.Headers != nil {
		if err := d.invalid(header, at+"/headers"); err != nil {
			return fmt.Errorf("headers %v: %w", header, err)
		}
	}
	var body any = string(m.Data)
	if described.ContentType == "" { // the default: JSON
		var err error
		if body, err = jsonschema.UnmarshalJSON(bytes.NewReader(m.Data)); err != nil {
			return err
		}
	}
	return d.invalid(body, at+"/payload")
}

// tap records each message that a client could see.
func tap(t *testing.T, nc *nats.Conn) (all func() []*nats.Msg) {
	t.Helper()
	var mu sync.Mutex
	var got []*nats.Msg
	for _, subject := range []string{"lapse.>", "_INBOX.>"} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if !strings.HasPrefix(m.Subject, subject[:len(subject)-1]) {
				return // what a consumer gets of a stream has the subject of the stream
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() []*nats.Msg { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

// session has a message of every kind sent.
func session(t *testing.T, r *rig) {
	t.Helper()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := harness.NewClient(t, r.nats, "")
	c.Configure("orders", `{"defaultTtl":3600,"warnBefore":[1]}`)
	c.Want(201, wire.Upsert, "orders", "a.b ü", `{"n":1}`, wire.HeaderTrace, trace)
	c.Want(201, wire.Create, "orders", "2", `{"ttl":2,"text":"<&>"}`, wire.HeaderTrace, trace)
	c.Want(409, wire.Create, "orders", "2", `{}`, wire.HeaderTrace, trace)
	c.Want(200, wire.Replace, "orders", "a.b ü", `{"n":2}`, wire.HeaderClock, wire.ClockKeep)
	c.Want(200, wire.Patch, "orders", "a.b ü", `{"n":3}`, wire.HeaderIfMatch, "*")
	c.Want(200, wire.Touch, "orders", "a.b ü", "")
	last := c.Want(201, wire.Upsert, "orders", "3", `{}`, wire.HeaderExpiresAt, "2038-01-01T00:00:00Z", "Nats-Msg-Id",
		"orders/3/x")
	c.Want(204, wire.Delete, "orders", "3", "", wire.HeaderIfMatch, last.Etag.String())
	c.Want(404, wire.Delete, "orders", "3", "")
	c.Want(201, wire.Create, "orders", "7", `{"ttl":1}`, wire.HeaderTarget, "mail.send", wire.HeaderTrace, trace)
	c.Configure("other", `{"defaultTtl":null,"indexingMode":"none","changes":true}`)
	c.Want(201, wire.Create, "other", "1", `{"n":1}`, wire.HeaderTrace, trace)
	c.Want(200, wire.Patch, "other", "1", `{"n":2}`)
	c.Want(204, wire.Delete, "other", "1", "")
	if o, _ := c.Do(c.Prefix.Config("other"), `{"defaultTtl":0}`, nil); o.Status != 400 {
		t.Errorf("a configuration that is not valid: %+v", o)
	}
	c.Drop("other")
	for read, body := range map[string]string{
		"get.orders." + wire.EscapeID("a.b ü"): "", "get.orders.x": `{"renew":true}`, "list.orders": `{"limit":1}`,
		"count.orders": "", "config.orders": "", "collections": `{}`, "settled.orders": "",
		"forecast.orders": `{"buckets":2,"within":"1h","defaultTtl":60}`,
		"list.nothing":    `{"order":"deadline","within":"1h"}`,
		"query.orders":    `{"where":{"/n":{"gte":1}},"scan":true}`,
	} {
		if _, err := c.NC.Request("lapse.read."+read, []byte(body), limit); err != nil {
			t.Fatal(err)
		}
	}
	// Over HTTP lapse writes to the log too.
	r.do("PUT", "/collections/orders/documents/4", `{"ttl":1}`, "Idempotency-Key", "k", "Traceparent", trace).want(t, 201)
	r.do("PATCH", "/collections/orders/documents/4", `{"n":2}`).want(t, 200)
	r.do("POST", "/collections/orders/documents", "{\"id\":\"5\"}\n{\"id\":\"6\",\"ttl\":0}\n", "Content-Type",
		linesType).want(t, 200)
}

// replies are the channels of replies, by subject.
func (d *asyncAPI) replies(messages []*nats.Msg) map[string]string {
	channels := map[string]string{}
	for _, m := range messages {
		o, at := d.Operations[d.channel(m.Subject)], m.Reply
		if o.Reply == nil {
			continue
		}
		if o.Reply.Address != nil {
			_, name, _ := strings.Cut(o.Reply.Address.Location, "#/")
			at = m.Header.Get(name)
		}
		channels[at] = strings.TrimPrefix(o.Reply.Channel.Ref, "#/channels/")
	}
	return channels
}

// TestMessagesAreAsDescribed: every message of a session, of lapse and of its clients, is as /asyncapi.json
// says, and every message that is described is there.
func TestMessagesAreAsDescribed(t *testing.T) {
	r := start(t)
	d, all := readAsyncAPI(t, r), tap(t, connect(t, r))
	session(t, r)
	expired := func() (n int) {
		for _, m := range all() {
			if kind := d.channel(m.Subject); kind == "expired" || kind == "due" {
				n++
			}
		}
		return n
	}
	eventually(t, "three documents expire", func() bool { return expired() == 3 })
	messages := all()
	replies := d.replies(messages)
	for _, m := range messages {
		channel := d.channel(m.Subject)
		if channel == "" {
			channel = replies[m.Subject]
		}
		own := slices.ContainsFunc([]string{"_INBOX.", "lapse.fence.", "lapse.tick", "lapse.beat.", "lapse.snapshot."},
			func(prefix string) bool { return strings.HasPrefix(m.Subject, prefix) })
		switch {
		// the end of a fast batch of JetStream; lapse's own
		case channel != "" && len(m.Data) == 0 && strings.Contains(m.Reply, ".$FI"), channel == "" && own:
		case channel == "":
			t.Errorf("%s is in no channel", m.Subject)
		default:
			if err := d.check(channel, m); err != nil {
				t.Errorf("%s: %s %q, reply %s\n%v", channel, m.Subject, m.Data, m.Reply, err)
			}
		}
	}
	for name, c := range d.Channels {
		for message := range c.Messages {
			failure := message == "failed" && name != "getReply"
			if d.seen[name+" "+message] == 0 && !failure && name != "expiring" {
				t.Errorf("channel %s: no message %s was there: %v", name, message, slices.Sorted(maps.Keys(d.seen)))
			}
		}
	}
}

// TestAsyncAPI: the description is whole: each reference leads somewhere, each channel has an operation, and each
// example is as its schema says.
func TestAsyncAPI(t *testing.T) {
	r := start(t, func(o *serve.Options) { o.Processor.Prefix = "acme" })
	d := readAsyncAPI(t, r)
	if at := d.Channels["expired"].Address; d.AsyncAPI != "3.0.0" || len(d.Channels) < 15 || at == nil ||
		*at != "acme.expired.{collection}.{id}" {
		t.Errorf("%s, %+v", d.AsyncAPI, d.Channels)
	}
	text, err := os.ReadFile("openapi.json")
	var api asyncAPI
	if err == nil {
		err = json.Unmarshal(text, &api)
	}
	if err != nil || d.Info != api.Info {
		t.Errorf("%v, and openapi.json has %v: %v", d.Info, api.Info, err)
	}
	for name, s := range d.Components.Schemas {
		if bytes.Contains(s, []byte("openapi.json")) {
			t.Errorf("schema %s is not in openapi.json", name)
		}
	}
	for _, op := range wire.Ops {
		if _, ok := d.Operations[string(op)]; !ok {
			t.Errorf("no operation is %s", op)
		}
	}
	used := map[string]bool{}
	for name, o := range d.Operations {
		refs := []string{o.Channel.Ref}
		if o.Reply != nil {
			refs = append(refs, o.Reply.Channel.Ref)
		}
		for _, ref := range refs {
			channel := strings.TrimPrefix(ref, "#/channels/")
			if used[channel] = true; d.Channels[channel].Messages == nil {
				t.Errorf("operation %s: there is no %s", name, ref)
			}
		}
	}
	for name, c := range d.Channels {
		if !used[name] {
			t.Errorf("no operation has the channel %s", name)
		}
		for _, m := range c.Messages {
			if _, ok := d.Components.Messages[strings.TrimPrefix(m.Ref, "#/components/messages/")]; !ok {
				t.Errorf("channel %s: there is no %s", name, m.Ref)
			}
		}
	}
	examples := 0
	for name, m := range d.Components.Messages {
		for _, e := range m.Examples {
			examples++
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
			if err == nil {
				err = d.invalid(value, "components/messages/"+name+"/payload")
			}
			if err != nil {
				t.Errorf("the example of %s: %v", name, err)
			}
		}
	}
	if examples < 3 {
		t.Errorf("there are %d examples", examples)
	}
	if err := d.message("expired", &nats.Msg{Data: []byte(`{}`)}); err == nil {
		t.Error("a message without headers and members is as described")
	}
}
